"""The beginning and the end of a partition directory."""

from __future__ import annotations

from pylog.clock import Clock
from pylog.codec.format import INT64_MAX
from pylog.partition.commit_slots import FILE_BYTES, CommitSlots, CommitState
from pylog.partition.epochs import LeaderEpochs
from pylog.segment.naming import COMMIT_SLOTS, LOCK, LOG, PARTITION_METADATA, file_path
from pylog.storage import FileSystem, while_holding, write_atomically


def prepare_directory(filesystem: FileSystem, directory: str, topic_id: str, boot: int) -> None:
    """Lay out an empty partition: its slots say "empty, as of this boot", so that a later recovery knows power was lost.

    Durable on return.
    """
    metadata = f"version: 0\ntopic_id: {topic_id}"
    write_atomically(filesystem, f"{directory}/{PARTITION_METADATA}", metadata.encode(), durable=False)
    epochs = LeaderEpochs([])
    epochs.assigned(0, 0)
    epochs.save(filesystem, directory, durable=False)
    filesystem.open_appendable(file_path(directory, 0, LOG)).close()
    slots = CommitSlots(filesystem.open_appendable(f"{directory}/{COMMIT_SLOTS}"))
    try:
        slots.begin(
            CommitState(
                sequence=2, boot=boot, leader_epoch=0, active_base=0, written_end=0, log_end_offset=0, durable_offset=0,
                last_stable_offset=0, log_start_offset=0, high_watermark=0, segments_version=0, least_timestamp_ms=INT64_MAX,
            )
        )  # fmt: skip
        slots.sync()
    finally:
        slots.close()
    filesystem.sync_directory(directory)


def retire_directory(filesystem: FileSystem, clock: Clock, directory: str, timeout_s: float) -> None:
    """Wait for an append under way, then spoil the slots, so that writers with open files find the partition gone.

    ``LogLocked`` where it has not ended after ``timeout_s`` seconds.
    """

    def spoil() -> None:
        slots = filesystem.open_appendable(f"{directory}/{COMMIT_SLOTS}")
        try:
            slots.pwrite(bytes(FILE_BYTES), 0)
        finally:
            slots.close()

    while_holding(filesystem, clock, f"{directory}/{LOCK}", spoil, timeout_s)
