"""The event of this example: one order of a customer, as a record of the topic ``orders``.

key    the customer, so that one customer's orders are handled in the order they were made
value  JSON: {"number": 17, "cents": 4999}; numbers rise from 0, so that a missing one is noticed
"""

from __future__ import annotations

import json
import random
from typing import Any, NamedTuple

from pylog import Record

TOPIC = "orders"
GROUP = "workers"
LOG = "log"  # in the directory of the example, beside the table of handled.py
CUSTOMERS = 1_000


class Order(NamedTuple):
    number: int
    customer: str
    cents: int


def order(number: int) -> Order:
    """The order of this number: always the same one."""
    chance = random.Random(number)
    return Order(number, f"customer-{chance.randrange(CUSTOMERS)}", chance.randrange(100, 100_000))


def encode(order: Order) -> dict[str, Any]:
    """The arguments of ``Producer.send``."""
    return {
        "key": order.customer.encode(),
        "value": json.dumps({"number": order.number, "cents": order.cents}).encode(),
    }


def decode(record: Record) -> Order:
    value = json.loads(record.value)
    return Order(value["number"], record.key.decode(), value["cents"])
