"""Leader epochs: from which offset on each leader wrote. A pure value and its file
``leader-epoch-checkpoint``."""

from __future__ import annotations

from typing import NamedTuple

from pylog.codec.format import INT32_MAX, INT64_MAX
from pylog.segment.kafka_checkpoint import number_of, read_checkpoint, write_checkpoint
from pylog.segment.naming import EPOCH_CHECKPOINT
from pylog.storage import FileSystem


class EpochStart(NamedTuple):
    """The epoch and the offset of its first record."""

    epoch: int
    start_offset: int


class LeaderEpochs:
    """The rising list of epochs of one partition."""

    def __init__(self, starts: list[EpochStart]) -> None:
        self.starts = starts

    @property
    def latest(self) -> int:
        """The current epoch, -1 before the first."""
        return self.starts[-1].epoch if self.starts else -1

    def assigned(self, epoch: int, offset: int) -> bool:
        """Record that ``offset`` was written under ``epoch``; True if that is new and must be
        saved."""
        if epoch <= self.latest:
            return False
        self.starts.append(EpochStart(epoch, offset))
        return True

    def begin_another(self, end_offset: int, known: int) -> None:
        """Begin an epoch at the end of the log, later than all of them and than ``known``.

        Those that began at the end or after it are forgotten: nothing is left of their records.
        """
        newest = max(self.latest, known)
        self.starts = [start for start in self.starts if start.start_offset < end_offset]
        self.assigned(min(newest + 1, INT32_MAX), end_offset)

    def end_at(self, end_offset: int) -> None:
        """The log ends here now: the latest epoch begins here at the latest."""
        latest = self.latest
        self.starts = [start for start in self.starts if start.start_offset < end_offset]
        self.assigned(latest, end_offset)

    def end_of(self, epoch: int, log_end_offset: int) -> int:
        """The offset after the last record of this epoch or an earlier one."""
        return next((start.start_offset for start in self.starts if start.epoch > epoch), log_end_offset)

    @classmethod
    def load(cls, filesystem: FileSystem, directory: str) -> LeaderEpochs:
        """Return the epochs. Raises ``CorruptSegment`` for a malformed checkpoint or impossible
        numbers in it; ``FormatVersionError``."""
        path = f"{directory}/{EPOCH_CHECKPOINT}"
        return cls(
            [
                EpochStart(number_of(epoch, INT32_MAX, path), number_of(start, INT64_MAX, path))
                for epoch, start in read_checkpoint(filesystem, path, 2)
            ]
        )

    def save(self, filesystem: FileSystem, directory: str, *, durable: bool) -> None:
        write_checkpoint(filesystem, f"{directory}/{EPOCH_CHECKPOINT}", self.starts, durable=durable)
