"""The files of a segment that compaction writes, under the suffix ``.cleaned``. Needs the cleaner's
lock only.

Nothing reads them. A crash leaves some, which the next compaction, maintenance or recovery removes.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

from pylog.codec import COMPILED
from pylog.codec.batch import BatchView, read_header
from pylog.codec.format import INT64_MIN, Buffer
from pylog.errors import CorruptRecord, MissingCodec
from pylog.index import AbortedTransaction, encode_transactions
from pylog.interrupts import own
from pylog.partition.compact.gathered import GatheredFile
from pylog.partition.directory import PartitionDirectory, PartitionSettings
from pylog.segment import AbortedDigest, SealBuilder
from pylog.segment.naming import CLEANED, SEAL, TRANSACTION_INDEX
from pylog.segment.seal import encode
from pylog.segment.writer import SegmentWriter
from pylog.storage import AppendableFile

_LOOKED_INTO_BYTES = 32 << 20


class CleanedSegment:
    """One segment under way. ``add`` its batches, then ``finish``; ``close`` in any case.

    ``check_process`` raises in a forked child: it has the parent's files.
    """

    def __init__(
        self,
        directory: PartitionDirectory,
        base: int,
        settings: PartitionSettings,
        check_process: Callable[[], None],
    ) -> None:
        self._check_process = check_process
        self._directory = directory
        self._base = base
        self._seal = SealBuilder(directory.home)
        self._aborted: list[AbortedTransaction] = []
        self._files: list[GatheredFile] = []
        self._writer = SegmentWriter(
            directory.filesystem,
            directory.path,
            base,
            index_interval_bytes=settings.index_interval_bytes,
            index_max_bytes=settings.segment_index_bytes,
            index_suffix=CLEANED,
            log_suffix=CLEANED,
            wrap=self._gathered,
        )
        check_process()
        self._writer.rebuild_start()

    def _gathered(self, file: AppendableFile) -> GatheredFile:
        self._files.append(GatheredFile(file))
        return self._files[-1]

    @property
    def size_bytes(self) -> int:
        return self._writer.size_bytes

    def add(self, batch: Buffer) -> None:
        header = read_header(batch)
        position = self._writer.size_bytes
        self._writer.append(batch, header)
        self._seal.add(position, header, memoryview(batch), _least_timestamp_ms(BatchView(batch, header)))

    def add_aborted(self, aborted: AbortedTransaction) -> None:
        """The transaction ended by a marker that was added. Batches of it may be left in files that
        readers have open."""
        self._aborted.append(aborted)

    def finish(self, next_base: int) -> None:
        """Write what belongs to the log, and sync all of it. The next segment begins at
        ``next_base``."""
        self._check_process()
        self._writer.finish()
        for file in self._files:
            self._check_process()
            file.sync()
        self._write(TRANSACTION_INDEX, encode_transactions(self._aborted))
        self._write(SEAL, encode(self._seal.build(next_base, AbortedDigest.of(self._aborted))))

    def _write(self, kind: str, data: bytes) -> None:
        path = self._directory.file_path(self._base, kind) + CLEANED
        self._check_process()
        with closing(self._directory.filesystem.open_appendable(path)) as file:
            file.truncate(0)
            file.pwrite(data, 0)
            file.sync()

    def close(self) -> None:
        self._writer.close()


def _least_timestamp_ms(view: BatchView) -> int:
    if not COMPILED:
        return INT64_MIN  # too slow: as for any other seal
    try:
        return view.least_timestamp_ms(_LOOKED_INTO_BYTES)
    except own(CorruptRecord, MissingCodec):
        return INT64_MIN
