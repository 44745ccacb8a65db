"""Mutants made by rule that change nothing anybody could see, or nothing that is promised, each
with the reason."""

from __future__ import annotations

_CLOSED_BY_PYTHON = "the descriptor is given back with the last reference to it"
_OVERWRITTEN = "attach or refresh sets it before anybody looks"
_SIZE_OF_A_PIECE = "how much is read at once, or looked through before giving up; nothing is promised of the number"

EQUIVALENT: dict[tuple[str, str], str] = {
    (
        "producer/send_many.py",
        "BulkSender._partitions: topic.key_hash is None  ->  topic.key_hash is not None",
    ): "the same partitions, chosen one by one",
    (
        "partition/commit_slots.py",
        (
            "CommitState._make: 0 <= start <= stable <= high <= end <= INT64_MAX  ->  "
            "0 <= start <= stable <= high <= end < INT64_MAX"
        ),
    ): "no log has so many records",
    ("group/offsets.py", "OffsetStore.append: 1000  ->  1001"): "a thousandth of a wait",
    ("segment/seal.py", "encode: 0  ->  1"): "a seal of no batches has no times, with the flag and without",
    ("partition/read/assessment.py", "assess: 0  ->  1"): "the size is set in the loop, and what is cut is only logged",
    (
        "index/entries.py",
        "EntryWriter.drop_while: kept - 1  ->  kept + 1",
    ): "the loop looks once more, and drops nothing",
    ("segment/scan.py", "_header_pattern: 1  ->  2"): "a broader glance; what it finds is compared in full",
    (
        "partition/write/log_end.py",
        "LogEnd.roll: base < at < end  ->  base <= at < end",
    ): "no inner snapshot is at the base",
    (
        "partition/write/log_end.py",
        "LogEnd.publish_durable: return True  ->  return None",
    ): "the next look finds it synced",
    ("partition/write/log_end.py", "LogEnd.publish_durable: return False  ->  return None"): "as false",
    (
        "partition/write/durability.py",
        "Durability.sync: self._durable_offset < end_offset  ->  self._durable_offset <= end_offset",
    ): ("one look more, which finds it synced"),
    (
        "partition/write/durability.py",
        "Durability.__init__: self._file_of = (-1, -1)  ->  pass",
    ): "asked only where a file is open",
    (
        "partition/producers/snapshots.py",
        "read: 1  ->  2",
    ): "one byte more than there must be is enough to see that there is more",
    ("partition/repair/recovery.py", "_rebuild_from: 0  ->  1"): "a sequence of slots may begin anywhere",
    (
        "partition/write/log_end.py",
        "LogEnd._catch_up: self.forget()  ->  pass",
    ): "recovery drops it, too",
    ("index/offset_index.py", "OffsetIndexWriter.cut: 0  ->  1"): "no batch begins at position 1",
    (
        "partition/read/assessment.py",
        "_refuse_damage: size > INT32_MAX  ->  size >= INT32_MAX",
    ): "a segment is rolled before",
    ("segment/scan.py", "find_next_batch: 0  ->  1"): _SIZE_OF_A_PIECE,
    ("segment/scan.py", "module: 16384  ->  16385"): _SIZE_OF_A_PIECE,
    ("segment/scan.py", "module: 16 << 10  ->  16 >> 10"): _SIZE_OF_A_PIECE,
    ("segment/scan.py", "module: 20  ->  21"): _SIZE_OF_A_PIECE,
    ("segment/scan.py", "module: 10  ->  11"): _SIZE_OF_A_PIECE,
    (
        "segment/scan.py",
        (
            "SegmentScan._move_window: _CHUNK_BYTES if self._check_crc else _WINDOW_BYTES  ->  "
            "_CHUNK_BYTES if not self._check_crc else _WINDOW_BYTES"
        ),
    ): _SIZE_OF_A_PIECE,
    ("segment/seal.py", "module: 10  ->  11"): _SIZE_OF_A_PIECE,
    ("segment/kafka_checkpoint.py", "module: 20  ->  21"): _SIZE_OF_A_PIECE,
    ("partition/producers/snapshots.py", "module: 20  ->  21"): _SIZE_OF_A_PIECE,
    ("segment/writer.py", "SegmentWriter.close: self.file.close()  ->  pass"): _CLOSED_BY_PYTHON,
    ("index/entries.py", "EntryFile.close: self.file.close()  ->  pass"): _CLOSED_BY_PYTHON,
    ("partition/read/assessment.py", "assess: file.close()  ->  pass"): _CLOSED_BY_PYTHON,
    ("partition/write/log_end.py", "LogEnd.take_back: segment.close()  ->  pass"): _CLOSED_BY_PYTHON,
    ("segment/writer.py", "SegmentWriter.__init__: self.first_timestamp_ms = -1  ->  pass"): _OVERWRITTEN,
    ("segment/writer.py", "SegmentWriter.__init__: 1  ->  2"): _OVERWRITTEN,
    ("segment/seal.py", "SealBuilder.__init__: 1  ->  2"): "the first batch sets it, and of no batches nobody asks",
    ("transaction/owner.py", "TransactionOwner._prepare_commit: 1  ->  2"): "no transaction has such numbers",
    ("transaction/owner.py", "TransactionOwner.__init__: 0  ->  1"): "set before the first transaction",
    (
        "transaction/admin.py",
        "TransactionAdmin.abort_at: self._manager.require_writable()  ->  pass",
    ): "the partition refuses it, too",
    ("transaction/unfinished.py", "module: 32  ->  33"): "nothing is promised of the number",
    (
        "group/offsets.py",
        "OffsetStore.checkpoint_if_due: 0  ->  1",
    ): "how long one waits for a checkpoint of another process",
    (
        "group/offsets.py",
        (
            "OffsetStore._start_from_checkpoint: partition.next_offset < checkpoint.next_offset <= partition.log.latest_offset"
            "  ->  partition.next_offset <= checkpoint.next_offset <= partition.log.latest_offset"
        ),
    ): "it has what was read",
    (
        "group/offsets.py",
        (
            "OffsetStore.checkpoint_if_due: records < sum(map(len, partition.groups.values()))"
            "  ->  records <= sum(map(len, partition.groups.values()))"
        ),
    ): "one commit sooner or later",
}
