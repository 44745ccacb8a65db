"""Sizes and times that several rooms share. A limit of one file is in that file; those of the
record format are in ``codec/format.py``."""

RECORDS_AT_ONCE = 1024
"""Records to decode at once from a batch: enough to make a call cheap, few enough for memory."""

DECODE_RECORDS_MAX = 4_096
"""Records decoded in one call. Limits the memory that a hostile batch of few bytes can take."""

FETCH_BYTES = 1 << 20
"""Bytes of batches to read at once from a partition."""

DEFAULT_TIMEOUT_MS = 120_000
"""How long a write waits for other writers by default: Kafka's ``delivery.timeout.ms``."""
