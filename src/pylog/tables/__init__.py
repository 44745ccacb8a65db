"""Tables: the newest value of each key of a topic, as a mapping that follows the topic.

In short::

    with pylog.table(log, "positions", directory="var/positions-table") as positions:
        positions[b"N14228"]                      # the newest value, of any process

    with pylog.table(log, "positions", changelog=True) as positions:
        positions[b"N14228"] = b"EWR"             # a record of the topic
        value, offset = positions.get_with_offset(b"N14228")
        positions.put(b"N14228", b"IAH", expected_offset=offset)

docs/tables.md has what is promised, and which store to choose.
"""

from pylog.tables.mapping import Table
from pylog.tables.opening import table
from pylog.tables.writable import WritableTable

__all__ = ["Table", "WritableTable", "table"]
