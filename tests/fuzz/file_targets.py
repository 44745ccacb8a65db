"""The small files of a log, the names on its disk, and what the command line shows of them."""

from __future__ import annotations

import json
import os.path
import unicodedata
from functools import cache
from pathlib import Path

from pylog.catalog import TopicConfig, read_manifest
from pylog.catalog.catalog import Catalog
from pylog.catalog.layout import Layout, parse_partition, parse_stray
from pylog.catalog.topic import check_topic_name, collision_key
from pylog.cli.dump import dump_file
from pylog.cli.dumped_records import record_item
from pylog.cli.exits import UsageError
from pylog.cli.formats import record_fields, text_format
from pylog.cli.output import json_line, safe, safe_bytes
from pylog.clock import SystemClock
from pylog.codec.checksum import crc32c
from pylog.codec.format import INT32_MAX, INT64_MAX
from pylog.errors import InvalidTopicName
from pylog.index import AbortedTransaction
from pylog.manager.producer_ids import read_next_id
from pylog.model import Record, TopicPartition
from pylog.partition.commit_slots import (
    HEAD,
    HEAD_BYTES,
    OLD_SLOT_BYTES,
    SLOT_BYTES,
    SLOTS,
    CommitState,
    latest,
    whole_file,
)
from pylog.partition.epochs import LeaderEpochs
from pylog.partition.producers import snapshots
from pylog.partition.producers.state import BatchTrace, ProducerEntry, ProducerStates
from pylog.segment import naming
from pylog.segment.kafka_checkpoint import read_checkpoint, read_offsets
from tests.codec.reference import TS0
from tests.fuzz.files import Files
from tests.fuzz.mutate import put_number
from tests.fuzz.segment_targets import right_log, right_seal
from tests.fuzz.target import Target, require

KAFKA = Path(__file__).parents[1] / "data" / "kafka-4.3.1" / "log"
_KINDS = (naming.LOG, naming.OFFSET_INDEX, naming.TIME_INDEX, naming.TRANSACTION_INDEX, naming.SNAPSHOT, naming.SEAL)


# Producer snapshots and commit slots


def run_snapshot(data: bytes) -> str:
    states = ProducerStates.decode(data, "path")
    require(ProducerStates.decode(states.encode(), "path").encode() == states.encode(), "a snapshot that changes")
    read = snapshots.read(Files({f"d/{42:020d}.snapshot": data}), "d", 42)
    traces = [trace for entry in read.entries.values() for trace in entry.batches]
    require(all(0 <= trace.first_offset <= trace.last_offset < 42 for trace in traces), "a batch that cannot be")
    read.expire(TS0, 0)
    opened = read.first_open_offset()
    require(opened is None or 0 <= opened < 42, "an open transaction ahead of it")
    return f"{min(len(read.entries), 2)} producers"


def repair_snapshot(data: bytearray) -> None:
    """The version, a number of producers that fits the length where one does, and the checksum."""
    if len(data) >= 10:
        data[:2] = b"\0\1"
        if (len(data) - 10) % 46 == 0 and data[6] < 0x80:
            put_number(data, 6, 4, (len(data) - 10) // 46)
        put_number(data, 2, 4, crc32c(bytes(data[6:])))


def _snapshot_seeds() -> list[bytes]:
    states = ProducerStates()
    some = ProducerStates()
    some.entries[7] = ProducerEntry(0, -1, None)
    some.entries[7].batches.append(BatchTrace(0, 4, 10, 14, TS0))
    some.entries[9] = ProducerEntry(3, 2, 12)
    return [states.encode(), some.encode()]


def run_slots(data: bytes) -> str:
    state = latest(data)
    for at in (HEAD_BYTES, HEAD_BYTES + SLOT_BYTES):
        slot = data[at : at + SLOT_BYTES]
        one = SLOTS.latest(bytes(at) + slot)
        require(one is None or one.body()[:72] == slot[4:76], "a slot that says other bytes")
    if state is None:
        return "nothing published"
    require(0 <= state.log_start_offset <= state.log_end_offset <= INT64_MAX, "a log that ends before it begins")
    require(state.log_start_offset <= state.last_stable_offset <= state.high_watermark, "offsets out of order")
    require(max(state.durable_offset, state.high_watermark) <= state.log_end_offset, "an offset beyond the end")
    return "published"


def repair_slots(data: bytearray) -> None:
    is_old = not data.startswith(HEAD[:8])
    start, size = (0, OLD_SLOT_BYTES) if is_old else (HEAD_BYTES, SLOT_BYTES)
    for at in range(start, len(data) - size + 1, size):
        put_number(data, at, 4, crc32c(bytes(data[at + 4 : at + size])))
    if not is_old and len(data) >= 16:
        put_number(data, 12, 4, crc32c(bytes(data[:12])))


def _slots_seeds() -> list[bytes]:
    state = CommitState(
        sequence=7, boot=0x1234ABCD, leader_epoch=0, active_base=100, written_end=4096, log_end_offset=120, durable_offset=110,
        last_stable_offset=120, log_start_offset=0, high_watermark=120, segments_version=3, least_timestamp_ms=TS0,
    )  # fmt: skip
    last = state._replace(sequence=2**32 - 1)
    old = bytes.fromhex(
        "3a0dc006000000071234abcd000000000000000000000064000010000000001400000000"
        "0000006e000000000000007800000000000000000000000000000003"
    )
    return [
        whole_file(state),
        HEAD + SLOTS.slot(state.body())[0] + bytes(SLOT_BYTES),
        whole_file(last),
        old + bytes(64),
        old * 2,
    ]


def _slots_fields(data: bytes) -> list[tuple[int, int]]:
    one = [(4, 4), (8, 4), (12, 4), (16, 8), (24, 4), (28, 4), (32, 8), (40, 8), (48, 8)]
    starts = (0, 64) if not data.startswith(HEAD[:8]) else (HEAD_BYTES, HEAD_BYTES + SLOT_BYTES)
    last = [(56, 4), (60, 4)] if starts[0] == 0 else [(56, 8), (64, 8), (72, 4)]
    return [(8, 2), *((start + at, width) for start in starts for at, width in [*one, *last] if start + at < len(data))]


def _snapshot_fields(data: bytes) -> list[tuple[int, int]]:
    one = [(0, 8), (8, 2), (10, 4), (14, 8), (22, 4), (26, 8), (34, 4), (38, 8)]
    return [(0, 2), (6, 4), *((start + at, width) for start in range(10, min(len(data), 102), 46) for at, width in one)]


# JSON


def run_manifest(data: bytes) -> str:
    manifest = read_manifest(Files({"m": data}), "m")
    assert manifest is not None
    require(manifest.log_id and manifest.locks in ("ofd", "flock"), "facts that no log has")
    return "a manifest"


def run_topic(data: bytes) -> str:
    layout = Layout("r")
    topic = Catalog(Files({layout.topic("t"): data}), SystemClock(), layout, TopicConfig()).describe("t")
    topic.config.check()
    require(1 <= topic.partitions <= 100_000 and topic.id.isascii(), "a topic that cannot be")
    return "a topic"


_NO_OBJECTS = (b"[]", b"null", b'"text"', b"17")


def _manifest_seeds() -> list[bytes]:
    facts = {"format": 1, "log_id": "0e6d1f2a-0000-4000-8000-000000000000", "locks": "ofd", "created_ms": TS0}
    return [json.dumps(facts, indent=2).encode(), json.dumps({**facts, "features": []}).encode("utf-16"), *_NO_OBJECTS]


def _topic_seeds() -> list[bytes]:
    return [
        json.dumps(
            {"id": "AAAAAAAAAAAAAAAAAAAAAA", "partitions": 3, "config": TopicConfig().as_dict()}, indent=2
        ).encode(),
        json.dumps({"id": "a", "partitions": 1, "config": {}}).encode(),
        *_NO_OBJECTS,
    ]


_JSON_WORDS = (
    b"null", b"true", b"NaN", b"-Infinity", b"1e999", b"1.0", b"9" * 5000, b"{}", b"[]", b"[" * 3000, b'{"a":' * 2000,
    b'"\\ud800"', b'""', b"\xff\xfe", b"\xef\xbb\xbf", b"\0", b'"format"', b'"features": ["x"],', b'"segment_bytes"',
)  # fmt: skip


# Text


def run_epochs(data: bytes) -> str:
    epochs = LeaderEpochs.load(Files({"d/leader-epoch-checkpoint": data}), "d")
    require(
        all(0 <= start.epoch <= INT32_MAX and 0 <= start.start_offset <= INT64_MAX for start in epochs.starts),
        "no epoch",
    )
    return f"{min(len(epochs.starts), 2)} epochs"


def run_offsets(data: bytes) -> str:
    files = Files({"recovery-point-offset-checkpoint": data})
    failed: Exception | None = None
    for fields in (1, 2, 3):
        try:
            entries = read_checkpoint(files, "recovery-point-offset-checkpoint", fields)
        except Exception as error:  # noqa: BLE001 - the last one is judged by who called
            failed = error
        else:
            require(all(len(entry) == fields for entry in entries), "an entry of other words")
            failed = None
    if failed is not None:
        raise failed
    offsets = read_offsets(files, "recovery-point-offset-checkpoint")
    require(all(0 <= offset <= INT64_MAX for offset in offsets.values()), "no offset")
    return f"{min(len(offsets), 2)} offsets"


def run_producer_ids(data: bytes) -> str:
    require(0 < (read_next_id(Files({"ids": data}), "ids") or 0) <= INT64_MAX - 1000, "ids that nobody can have")
    return "an id"


# Names


def run_names(data: bytes) -> str:
    text = data.decode("utf-8", "surrogateescape")
    _read_file_name(text)
    try:
        name = check_topic_name(text)
    except InvalidTopicName:
        parse_partition(text)
        parse_stray(text)
        raise
    collision_key(name)
    layout = Layout("/root")
    for number in (0, 99_999):
        path = layout.partition(name, number)
        require(os.path.normpath(path) == path and os.path.dirname(path) == "/root", "a topic outside the log")
        require(parse_partition(os.path.basename(path)) == TopicPartition(name, number), "a partition of another topic")
        require(parse_stray(os.path.basename(layout.stray(name, number, "ab12"))) is not None, "a stray of nobody")
        require(len(os.path.basename(layout.condemned(name, number, "ab12"))) <= 255, "a name no disk takes")
    require(len(os.path.basename(layout.topic(name))) <= 255, "a name no disk takes")
    return "a topic's name"


def _read_file_name(text: str) -> None:
    for kind in _KINDS:
        offset = naming.offset_of(text, kind)
        require(offset is None or naming.file_name(offset, kind) == text, "another file's offset")
        require(naming.offsets_of([text], kind) == ([] if offset is None else [offset]), "two opinions of one name")
    naming.is_leftover(text)
    require(naming.is_ours(text) or naming.base_offsets([text]) == [], "a segment that is nobody's")
    naming.may_hold_records(text)


_NAME_WORDS = (
    b"..", b"/", b"../", b"\0", b".", b"-", b"_", b"\xff", "ß".encode(), "\u202e".encode(), b"0" * 20, b".log", b".deleted",
    b".seal.1-ab.tmp", b".rewrite", b"-99999", b"-100000", b"-stray", b"-delete", b"a" * 249, "٣".encode(), b"\n", b" ", b"NUL",
)  # fmt: skip


# What is shown


@cache
def _steers(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") or unicodedata.bidirectional(character) in (
        "LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI",
    )  # fmt: skip


def require_harmless(text: str, what: str) -> None:
    if not text.isprintable():
        found = [character for character in text if not character.isprintable() and _steers(character)]
        require(not found, f"{what} shows {found[:3]!r}")


def _text_of(data: bytes) -> str:
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return data.decode("utf-8", "surrogateescape")


def run_formatter(data: bytes) -> str:
    text = _text_of(data)
    record = Record(text, 0, 1, 10**17, data, data[::-1], ((text, data), (text[::-1], None)))
    for shown in (safe(text), safe_bytes(data), text_format("%t %p %o %T %d %k %v %h %K %V %%")(record)):
        require_harmless(shown, "text")
    line = json_line(record_fields(record))
    require(line.isascii() and line.isprintable(), "JSON that is not printable ASCII")
    json.loads(line)
    try:
        text_format(text)(record)
    except UsageError:
        return "no format"
    return "a format"


def run_dump(data: bytes) -> str:
    """The first byte chooses the file's kind. Lines of any file are harmless, and come to an
    end."""
    if not data:
        return "no input"
    name = _DUMPED[data[0] % len(_DUMPED)]
    said = []
    for number, item in enumerate(dump_file(Files({f"d/{name}": data[1:]}), f"d/{name}", record_item)):
        require(number < 5 * SIZE_LIMIT, "dumping does not end")
        require_harmless(safe(item.pop("text")), "a line")
        line = json_line(item)
        require(line.isascii() and line.isprintable(), "JSON that is not printable ASCII")
        said.append(item["type"])
    return f"{name}: {' '.join(sorted(set(said)))}"


SIZE_LIMIT = 20_000
_DUMPED = (
    *(f"{1000:020d}{kind}" for kind in _KINDS), naming.COMMIT_SLOTS, naming.EPOCH_CHECKPOINT, "recovery-point-offset-checkpoint",
)  # fmt: skip


def repair_dump(data: bytearray) -> None:
    """The checksums of the file behind the first byte."""
    from tests.fuzz.record_targets import repair_batches
    from tests.fuzz.segment_targets import repair_seal

    if data:
        repairs = {0: repair_batches, 4: repair_snapshot, 5: repair_seal, 6: repair_slots}
        inner = data[1:]
        repairs.get(data[0] % len(_DUMPED), lambda _: None)(inner)
        data[1:] = inner


def _dump_seeds() -> list[bytes]:
    transaction = b"\0\0" + b"".join(number.to_bytes(8, "big") for number in AbortedTransaction(7, 10, 19, 20))
    contents = [right_log(3), b"\0\0\0\1\0\0\0\x50", bytes(8) + b"\0\0\0\1", transaction, _snapshot_seeds()[1], right_seal(3),
                _slots_seeds()[0], _EPOCHS[0], _OFFSETS[0]]  # fmt: skip
    return [bytes([number]) + content for number, content in enumerate(contents)]


_EPOCHS = [b"0\n2\n0 0\n3 120\n", b"", b"0\n0\n"]
_OFFSETS = [b"0\n2\norders 0 120\norders 1 7\n", b"0\n0\n"]
_TEXT_WORDS = (
    b"\n",
    b" ",
    b"\r\n",
    b"\x0b",
    "\u2028".encode(),
    "٣".encode(),
    b"-0",
    b"+1",
    b"1_0",
    b"0x1",
    b"9" * 30,
    b"9" * 5000,
    b"\xff",
    b"0\n",
)
_SHOWN_WORDS = (
    b"\x1b[31m", b"\x9b", b"\xc2\x9b", "\u202e".encode(), "\u2066".encode(), "\u2028".encode(), b"\x7f", b"\r", b"\n", b"\x07",
    b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"%k", b"%", b"\\", b"\\n", "\U000e0001".encode(), "\ufeff".encode(), "\u061c".encode(),
)  # fmt: skip

TARGETS = {
    "snapshot": Target(run_snapshot, _snapshot_seeds, repair_snapshot, _snapshot_fields),
    "slots": Target(run_slots, _slots_seeds, repair_slots, _slots_fields),
    "manifest": Target(run_manifest, _manifest_seeds, words=_JSON_WORDS),
    "topic": Target(run_topic, _topic_seeds, words=_JSON_WORDS),
    "epochs": Target(run_epochs, lambda: _EPOCHS, words=_TEXT_WORDS),
    "offsets": Target(run_offsets, lambda: _OFFSETS, words=_TEXT_WORDS),
    "producer-ids": Target(run_producer_ids, lambda: [b"1000\n", b"4000", b""], words=_TEXT_WORDS),
    "names": Target(
        run_names,
        lambda: [
            b"orders",
            b"my.topic_1-0",
            b"00000000000000000042.log",
            b"00000000000000000042.seal.77-ab12.tmp",
            b".commit",
        ],
        words=_NAME_WORDS,
    ),
    "formatter": Target(run_formatter, lambda: [b"plain", "Grüße, 世界".encode(), b"%k: %v\\n"], words=_SHOWN_WORDS),
    "dump": Target(run_dump, _dump_seeds, repair_dump, words=_SHOWN_WORDS),
}
