"""Whether what ``.times`` says of a segment's blocks is so: a time that is wrong there would hide records. Reads only."""

from __future__ import annotations

from pylog.codec.batch import BatchHeader, header_crc
from pylog.errors import StorageError
from pylog.partition.verify.findings import FirstFinding
from pylog.segment.block_times import ENTRY, BlockTimes, block_of, read_block_times
from pylog.storage import Buffer, FileSystem


class BlockTimesCheck:
    """Is told of every batch in order. Entries that are missing, or torn, say nothing, and are no problem."""

    def __init__(self, filesystem: FileSystem, path: str, end: int) -> None:
        self.findings = FirstFinding("times", path)
        self._blocks: list[BlockTimes | None] = []
        self._number = -1
        try:
            self._blocks = read_block_times(filesystem, path, end)
        except StorageError as error:
            self.findings.add(0, None, None, str(error))

    @property
    def has_entries(self) -> bool:
        return bool(self._blocks)

    def batch(self, position: int, header: BatchHeader, front: Buffer, least_ms: int) -> None:
        """A good batch, whose records have ``least_ms`` or later."""
        number = block_of(position)
        block = self._blocks[number] if number < len(self._blocks) else None
        is_first, self._number = number != self._number, number
        if block is None:
            return
        if is_first and (block.position, block.front_crc) != (position, header_crc(front)):
            self._wrong(number, header, f"says that another batch is the first, at position {block.position}")
        elif least_ms < block.least_ms or header.max_timestamp_ms > block.greatest_ms:
            times = f"{least_ms} to {header.max_timestamp_ms}"
            self._wrong(number, header, f"says {block.least_ms} to {block.greatest_ms}, a batch there has {times}")

    def damage(self) -> None:
        """What begins in a block is not known any more."""
        self._blocks.clear()

    def _wrong(self, number: int, header: BatchHeader, problem: str) -> None:
        at = number * ENTRY.size
        self.findings.add(at, header.base_offset, header.last_offset + 1, f"the entry of block {number} {problem} (ms)")
