"""Whether what is said of the times of a segment's batches is so, in ``.times`` and in its seal: what is wrong there would hide
records. Reads only."""

from __future__ import annotations

from pylog.codec.batch import BatchHeader, header_crc
from pylog.errors import StorageError
from pylog.interrupts import own
from pylog.partition.verify.findings import FirstFinding
from pylog.segment import Seal
from pylog.segment.block_times import ENTRY, BlockTimes, block_of, read_block_times
from pylog.segment.seal import LEAST_EVERY_BYTES, TIMES_EVERY
from pylog.storage import Buffer, FileSystem


class BlockTimesCheck:
    """Is told of every batch in order. Entries that are missing, or torn, say nothing, and are no problem."""

    def __init__(self, filesystem: FileSystem, path: str, end: int) -> None:
        self.findings = FirstFinding("times", path)
        self._blocks: list[BlockTimes | None] = []
        self._number = -1
        try:
            self._blocks = read_block_times(filesystem, path, end)
        except own(StorageError) as error:
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
        if block.is_empty:
            self._wrong(number, header, "says that no batch begins there")
        elif is_first and (block.position, block.front_crc) != (position, header_crc(front)):
            self._wrong(number, header, f"says that another batch is the first, at position {block.position}")
        elif least_ms < block.least_ms or header.max_timestamp_ms > block.greatest_ms:
            times = f"{least_ms} to {header.max_timestamp_ms}"
            self._wrong(number, header, f"says {block.least_ms} to {block.greatest_ms} (ms), a batch there has {times}")

    def damage(self) -> None:
        """What begins in a block is not known any more."""
        self._blocks.clear()

    def _wrong(self, number: int, header: BatchHeader, problem: str) -> None:
        at = number * ENTRY.size
        self.findings.add(at, header.base_offset, header.last_offset + 1, f"the entry of block {number} {problem}")


class SealTimesCheck:
    """The same for a seal, which has said so much under its checksum, and may have taken it from a wrong ``.times``."""

    def __init__(self, seal: Seal | None, path: str) -> None:
        self.findings = FirstFinding("seal", path)
        self._seal = seal

    @property
    def has_entries(self) -> bool:
        return self._seal is not None and bool(self._seal.least_ms)

    def batch(self, position: int, header: BatchHeader, least_ms: int) -> None:
        seal = self._seal
        number = seal.number_at(position) if seal is not None else None
        if seal is None or number is None:
            return
        block = position // LEAST_EVERY_BYTES
        said_ms = seal.least_ms[block] if seal.least_ms else least_ms
        if least_ms < said_ms:
            self._wrong(header, f"says that no record of block {block} is before {said_ms}, one has {least_ms}")
        if seal.greatest_ms and header.max_timestamp_ms > (said_ms := seal.greatest_ms[number // TIMES_EVERY]):
            self._wrong(
                header, f"says that the first {number + 1} batches reach {said_ms}, one has {header.max_timestamp_ms}"
            )

    def _wrong(self, header: BatchHeader, problem: str) -> None:
        self.findings.add(0, header.base_offset, header.last_offset + 1, f"{problem} (ms)")
