"""Leader epochs: from which offset on each leader wrote. A pure value and its file ``leader-epoch-checkpoint``."""

from __future__ import annotations

from typing import NamedTuple

from pylog.codec.format import INT32_MAX, INT64_MAX
from pylog.partition.checkpoint import number_of, read_checkpoint, write_checkpoint
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
        """Note that ``offset`` was written under ``epoch``; True if that is news, to be saved."""
        if epoch <= self.latest:
            return False
        self.starts.append(EpochStart(epoch, offset))
        return True

    def cut(self, end_offset: int) -> bool:
        """Forget epochs that began at or beyond the end of the log; True if there were any."""
        kept = [start for start in self.starts if start.start_offset < end_offset]
        changed = len(kept) != len(self.starts)
        self.starts = kept
        return changed

    @classmethod
    def load(cls, filesystem: FileSystem, directory: str) -> LeaderEpochs:
        """``CorruptSegment`` for what is no checkpoint, or has numbers that are no epochs or offsets; ``FormatVersionError``."""
        path = f"{directory}/{EPOCH_CHECKPOINT}"
        return cls(
            [
                EpochStart(number_of(epoch, INT32_MAX, path), number_of(start, INT64_MAX, path))
                for epoch, start in read_checkpoint(filesystem, path, 2)
            ]
        )

    def save(self, filesystem: FileSystem, directory: str) -> None:
        write_checkpoint(filesystem, f"{directory}/{EPOCH_CHECKPOINT}", self.starts, durable=False)
