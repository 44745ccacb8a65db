"""A transactional outbox: records that exist exactly if a transaction of one's own database does.

In short::

    Outbox.create_table(connection)                     # once

    with connection:                                    # one transaction of the database
        connection.execute("UPDATE orders SET ...")
        Outbox(connection).add("orders", b"paid", key=b"17")

    relay(log, connect, poll_interval_ms=200)           # in another process, or thread

docs/outbox.md has the promises and what a crash leaves.
"""

from pylog.consumer.stored_offsets import StoredOffsets
from pylog.outbox.relay import relay
from pylog.outbox.table import TABLE, Outbox

__all__ = ["TABLE", "Outbox", "StoredOffsets", "relay"]
