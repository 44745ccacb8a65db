"""Arrow on both sides of a log: batches as record batches with the columns of Spark's Kafka source, tables as rows to send.

columns.py: the columns, made of what the codec decoded. batches.py: how much of them goes into one record batch.
rows.py: tables to be sent (loaded by who sends). Reads no file and knows no log. Loading this needs pyarrow, so nothing
imports it before it is asked for.
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
