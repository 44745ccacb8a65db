"""Sizes and times that several rooms share. A limit that only one file knows stands in that file; those of the record format
stand in ``codec/format.py``."""

RECORDS_AT_ONCE = 1024
"""Records decoded in one go by what passes through a batch: large enough that a call is cheap, small enough for the memory."""

FETCH_BYTES = 1 << 20
"""Bytes of batches read in one go by what passes through a partition."""

DEFAULT_TIMEOUT_MS = 120_000
"""How long a write waits for other writers if the caller sets no time: Kafka's ``delivery.timeout.ms``."""
