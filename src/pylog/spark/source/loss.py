"""Data loss: offsets that a query is to read, and that are gone. It fails, or puts up with it (``failOnDataLoss=false``)."""

from __future__ import annotations

import logging
from typing import Any

from pylog.errors import OffsetOutOfRange
from pylog.model import TopicPartition

logger = logging.getLogger("pylog.spark")


def report(what: str, topic_partition: TopicPartition, *, fails: bool, **facts: Any) -> None:
    """Raise ``OffsetOutOfRange`` where the query fails on loss, else warn, in the same words.

    They are an error's in both cases, and so printable, whatever a checkpoint or a directory has for a name.
    """
    advice = "failOnDataLoss=false goes on with what there is" if fails else "going on with what there is"
    error = OffsetOutOfRange(f"{what}; {advice}", **topic_partition._asdict(), **facts)
    if fails:
        raise error
    logger.warning("%s", error)
