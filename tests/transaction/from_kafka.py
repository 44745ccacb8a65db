"""A log of pylog's with topics that a Kafka broker wrote: their files in the place of a new
topic's."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from pylog import Log

KAFKA = Path(__file__).parents[1] / "data" / "kafka-4.3.1" / "log"
OPEN_TOPIC = "transactions-open"
OPEN_OFFSET, OPEN_PRODUCER_ID, OPEN_ID = 5, 1013, "open-left"
"""Its open transaction: first offset, producer id and transactional id."""
KEPT = "partition.metadata"


def take_files(root: Path, topics: Iterable[str], *, segments: int | None = None) -> None:
    """``segments``: only the first of each topic, as if the broker had ended there."""
    with Log(root) as log:
        for topic in topics:
            log.manager.create_topic(topic, internal=topic.startswith("__"))
    for topic in topics:
        ours, theirs = root / f"{topic}-0", KAFKA / f"{topic}-0"
        for path in ours.iterdir():
            if path.name != KEPT:
                path.unlink()
        bases = sorted(path.stem for path in theirs.glob("*.log"))[:segments]
        for path in theirs.iterdir():
            if path.name != KEPT and (path.stem in bases or not path.stem.isdigit()):
                shutil.copyfile(path, ours / path.name)
