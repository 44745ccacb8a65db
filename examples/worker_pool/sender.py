"""The process that sends orders, so many a second, with a rush in the middle third of its time.

    python sender.py DIRECTORY --seconds 30 --rate 150 --rush 5

It prints how many it sent, once all of them are acknowledged.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from orders import LOG, TOPIC, encode, order

from pylog import Log, Producer
from pylog.errors import PylogError

TICK_S = 0.02


def send(directory: str, seconds: float, rate: float, rush: float) -> int:
    began_s = time.monotonic()
    sent = 0
    # Leaving the producer's block waits until every record is acknowledged, and raises if one could
    # not be written.
    with Log(Path(directory, LOG), create=False) as log, Producer(log, acks="all", linger_ms=20) as producer:
        while True:
            elapsed_s = time.monotonic() - began_s
            due = orders_due(elapsed_s, seconds, rate, rush)
            for number in range(sent, due):
                producer.send(TOPIC, **encode(order(number)))
            sent = due
            if elapsed_s >= seconds:
                break
            time.sleep(TICK_S)
    return sent


def orders_due(elapsed_s: float, seconds: float, rate: float, rush: float) -> int:
    """How many orders have come in by then: ``rate`` a second, and ``rush`` times as many in the
    middle third."""
    third_s = seconds / 3
    rushed_s = min(max(elapsed_s - third_s, 0.0), third_s)
    return int(rate * (min(elapsed_s, seconds) + (rush - 1) * rushed_s))


def main() -> None:
    parser = argparse.ArgumentParser(description="Send orders to the log, so many a second.")
    parser.add_argument("directory")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--rate", type=float, default=150.0, help="orders a second")
    parser.add_argument("--rush", type=float, default=5.0, help="times as many in the middle third")
    arguments = parser.parse_args()
    try:
        print(send(arguments.directory, arguments.seconds, arguments.rate, arguments.rush))
    except PylogError as error:
        sys.exit(f"sender: {type(error).__name__}: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
