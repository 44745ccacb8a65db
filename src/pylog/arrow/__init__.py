"""Arrow for a log: record batches with the columns of Spark's Kafka source, and tables to send.

columns.py: columns of decoded batches. batches.py: record batches of a good size. rows.py: tables
to send (senders load it). Reads no file. Needs pyarrow, so it is imported only on demand.
"""

from __future__ import annotations

from pylog.errors import ConfigError

try:
    import pyarrow as pa  # noqa: F401 - one clear error for every way in
except ImportError as error:
    raise ConfigError(
        "Arrow tables need pyarrow, which is not installed: pip install 'pylog-embedded[arrow]', or pip install pyarrow",
        extra="arrow",
    ) from error

from pylog.arrow.batches import PIECE_BYTES, record_batches, table, table_of_parts
from pylog.arrow.columns import Part, allocate, check_times, schema

__all__ = ["PIECE_BYTES", "Part", "allocate", "check_times", "record_batches", "schema", "table", "table_of_parts"]
