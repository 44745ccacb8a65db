"""``pylog dump``: the contents of a partition's files, pylog's or Kafka's, line by line.

It reads each file alone, opens no log and takes no lock. It continues after damage and reports what
it skipped; the exit code is 1 then. To find files that contradict each other, use ``pylog verify``.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pylog.cli.dumped_records import Item, Render, committed_item, decision_item, record_item
from pylog.cli.exits import OK, PROBLEM, UsageError
from pylog.cli.options import Commands, json_option
from pylog.cli.output import count_text, print_answer, time_text
from pylog.errors import CorruptRecord, CorruptSegment, FormatVersionError
from pylog.limits import RECORDS_AT_ONCE
from pylog.model import Record

if TYPE_CHECKING:
    from pylog.codec.batch import BatchHeader
    from pylog.storage import FileSystem, ReadableFile

_PASSING_SUFFIXES = (".deleted", ".swap", ".cleaned", ".rewrite", ".tmp")
_SMALL_FILE_BYTES = 256 << 20


def add_parser(commands: Commands) -> None:
    parser = commands.add_parser(
        "dump", parents=[json_option()], help="show what stands in segment files, indexes and checkpoints",
        description="Show the batches of segment files and the entries of indexes, snapshots, seals, commit slots and "
        "checkpoints; of a directory, all of them. Works on Kafka's files, and continues after damage.",
    )  # fmt: skip
    parser.add_argument("paths", metavar="PATH", nargs="+", help="a file, a partition directory, or a log")
    parser.add_argument("--records", action="store_true", help="the records of each batch, too")
    parser.add_argument(
        "--offsets-decoder", action="store_true", help="the records of __consumer_offsets, as what was committed"
    )
    parser.add_argument(
        "--transaction-log-decoder",
        action="store_true",
        help="the records of __transaction_state, as states of transactions",
    )
    parser.set_defaults(run=_run, only_reads=True)


def _run(arguments: argparse.Namespace) -> int:
    from pylog.storage import OsFileSystem

    filesystem = OsFileSystem()
    render = _render(arguments)
    damaged = False
    for given in arguments.paths:
        for path in _files(filesystem, given):
            for item in dump_file(filesystem, path, render):
                damaged = damaged or item["type"] == "damage"
                text, kind = item.pop("text"), item.pop("type")
                print_answer(arguments.json, {"type": kind, "file": path, **item}, text)
    return PROBLEM if damaged else OK


def _render(arguments: argparse.Namespace) -> Render | None:
    if arguments.offsets_decoder and arguments.transaction_log_decoder:
        raise UsageError("--offsets-decoder and --transaction-log-decoder are for different topics: name one")
    if arguments.offsets_decoder:
        return committed_item
    if arguments.transaction_log_decoder:
        return decision_item
    return record_item if arguments.records else None


def _files(filesystem: FileSystem, path: str) -> Iterator[str]:
    """The file; or the known files of a partition directory, or of a log's partitions."""
    if not filesystem.is_directory(path):
        filesystem.size(path)  # raises FileNotFoundError before the name is judged
        if _kind(os.path.basename(path)) is None:
            raise UsageError(f"{path}: by its name no file of a partition")
        yield path
        return
    from pylog.catalog.layout import parse_partition

    for name in filesystem.names(path):
        inner = os.path.join(path, name)
        if filesystem.is_directory(inner):
            if parse_partition(name) is not None:
                yield from _files(filesystem, inner)
        elif _kind(name) is not None:
            yield inner


def _kind(name: str) -> str | None:
    """The dumper for this file name."""
    for suffix in _PASSING_SUFFIXES:
        name = name.removesuffix(suffix)
    if name == "leader-epoch-checkpoint":
        return "epochs"
    if name.endswith("-offset-checkpoint"):
        return "offsets"
    return {
        "log": "log", "index": "index", "timeindex": "timeindex", "txnindex": "txnindex", "snapshot": "snapshot",
        "seal": "seal", "commit": "commit", "checkpoint": "log",
    }.get(name.rpartition(".")[2] if "." in name else "")  # fmt: skip


def dump_file(filesystem: FileSystem, path: str, render: Render | None) -> Iterator[Item]:
    """Every item of one file: first its name. ``render`` makes the records; damage has its own."""
    kind = _kind(os.path.basename(path))
    file = filesystem.open_readable(path)
    try:
        size = file.size()
        yield {"type": "file", "text": f"{path}: {kind}, {size} bytes", "kind": kind, "size_bytes": size}
        if kind == "log":
            yield from _batches(file, size, render)
        elif kind in ("index", "timeindex", "txnindex"):
            yield from _entries(file, size, kind, _base_offset(path))
        else:
            yield from _small_file(filesystem, file, path, kind)
    finally:
        file.close()


def _base_offset(path: str) -> int:
    """The number in the name. If there is none, 0: offsets are then relative."""
    digits = os.path.basename(path).partition(".")[0]
    return int(digits) if len(digits) == 20 and digits.isascii() and digits.isdigit() else 0


# Segments


def _batches(file: ReadableFile, end: int, render: Render | None) -> Iterator[Item]:
    from pylog.codec.format import INT32_MAX
    from pylog.partition.read.resync import resume_after
    from pylog.segment import SegmentScan

    position = next_offset = 0
    while position < end:
        scan = SegmentScan(file, position, end, next_offset=next_offset, dense=False)
        for position, header in scan:
            yield from _batch(file, position, header, render)
        if scan.problem is None:
            return
        position, next_offset = scan.position, scan.next_offset
        if _is_whole_batch(file, position, end):  # only its offset is wrong: it goes back
            yield _damage(position, None, f"{scan.problem} or more", "")
            next_offset = 0
            continue
        if end > INT32_MAX:  # a sparse file can have any size, so it is not searched for batches
            yield _damage(position, end, f"{scan.problem}; {_too_large(end, 'a segment')}", "")
            return
        try:
            position, offset = resume_after(file, position, end, next_offset)
            then = "nothing whole after it" if offset is None else f"continues at position {position}, offset {offset}"
        except CorruptSegment as given_up:
            position, then = end, str(given_up)
        yield _damage(scan.position, position, scan.problem, f"; {then}")


def _too_large(size: int, what: str) -> str:
    from pylog.codec.format import INT32_MAX

    return f"the file has {size} bytes, {what} has at most {INT32_MAX}; it was not looked into"


def _is_whole_batch(file: ReadableFile, position: int, end: int) -> bool:
    from pylog.segment import SegmentScan

    return next(iter(SegmentScan(file, position, end, next_offset=0, dense=False)), None) is not None


def _damage(position: int, next_position: int | None, problem: str, then: str) -> Item:
    return {
        "type": "damage", "text": f"  position {position}: DAMAGED: {problem}{then}", "position": position,
        "next_position": next_position, "problem": problem,
    }  # fmt: skip


def _batch(file: ReadableFile, position: int, header: BatchHeader, render: Render | None) -> Iterator[Item]:
    from pylog.codec.batch import BatchView
    from pylog.codec.compression import codec_name
    from pylog.codec.control import read_marker

    fields: Item = {
        "position": position,
        **_attributes(header, "size_bytes", "base_offset", "last_offset", "count"),
        "compression": codec_name(header.codec),
        "timestamp_type": "LogAppendTime" if header.is_log_append_time else "CreateTime",
        **_attributes(header, "base_timestamp_ms", "max_timestamp_ms", "leader_epoch"),
        **_attributes(header, "producer_id", "producer_epoch", "base_sequence", "last_sequence"),
        "transactional": header.is_transactional,
        "control": header.is_control,
        "control_type": None,
        "coordinator_epoch": None,
        **_attributes(header, "delete_horizon_ms", "crc"),
    }
    view = BatchView(file.pread(header.size_bytes, position), header) if render or header.is_control else None
    problem = None
    if view is not None and header.is_control and header.count:
        try:
            marker = read_marker(view)
            fields["control_type"] = marker.type.name
            fields["coordinator_epoch"] = marker.coordinator_epoch if marker.coordinator_epoch >= 0 else None
        except CorruptRecord as damage:
            problem = str(damage)
    yield {"type": "batch", "text": _batch_text(fields), **fields}
    if problem is None and view is not None and render is not None:
        try:
            for record in _records(view):
                yield (record_item if header.is_control else render)(record)
        except CorruptRecord as damage:
            problem = str(damage)
    if problem is not None:
        yield _damage(position, position + header.size_bytes, problem, "")


def _attributes(of: object, *names: str) -> Item:
    return {name: getattr(of, name) for name in names}


def _batch_text(fields: Item) -> str:
    parts = [
        f"  position {fields['position']}: offsets {fields['base_offset']}-{fields['last_offset']}",
        count_text(fields["count"], "record"),
        f"{fields['size_bytes']} bytes",
        fields["compression"],
        f"{fields['timestamp_type']} up to {time_text(fields['max_timestamp_ms'])}",
        f"epoch {fields['leader_epoch']}",
    ]
    if fields["producer_id"] >= 0:
        producer = f"producer {fields['producer_id']} epoch {fields['producer_epoch']}"
        parts.append(f"{producer} sequence {fields['base_sequence']}-{fields['last_sequence']}")
    if fields["transactional"]:
        parts.append("transactional")
    if fields["control"]:
        coordinator = fields["coordinator_epoch"]
        parts.append(f"control {fields['control_type'] or 'without a record'}")
        if coordinator is not None:
            parts.append(f"coordinator epoch {coordinator}")
    if fields["delete_horizon_ms"] is not None:
        parts.append(f"delete horizon {time_text(fields['delete_horizon_ms'])}")
    return ", ".join([*parts, f"crc {fields['crc']:#010x}"])


def _records(view: Any) -> Iterator[Record]:
    decoder = view.decoder("", -1)
    while records := decoder.take(RECORDS_AT_ONCE):
        yield from records


# Indexes


def _entries(file: ReadableFile, size: int, kind: str, base: int) -> Iterator[Item]:
    from pylog.codec.format import INT32_MAX
    from pylog.index import offset_index, time_index, transaction_index
    from pylog.index.entries import EntryFile

    if size > INT32_MAX:
        yield _damage(0, size, _too_large(size, "an index"), "")
        return
    layout = {"index": offset_index.ENTRY, "timeindex": time_index.ENTRY, "txnindex": transaction_index.ENTRY}[kind]
    for number, entry in enumerate(EntryFile(file, layout).entries(end=size // layout.size)):
        yield _entry(kind, number * layout.size, base, entry)
    if size % layout.size:
        yield _damage(size - size % layout.size, size, f"{size % layout.size} bytes, no whole entry", "")


def _entry(kind: str, at: int, base: int, entry: tuple[int, ...]) -> Item:
    if kind == "index":
        fields: Item = {"offset": base + entry[0], "position": entry[1]}
        text = f"offset {fields['offset']} at position {entry[1]}"
    elif kind == "timeindex":
        fields = {"timestamp_ms": entry[0], "offset": base + entry[1]}
        text = f"{time_text(entry[0])} at offset {fields['offset']}"
    else:
        names = ("version", "producer_id", "first_offset", "last_offset", "last_stable_offset")
        fields = dict(zip(names, entry, strict=True))
        text = f"producer {entry[1]} aborted offsets {entry[2]}-{entry[3]}, last stable offset {entry[4]}"
    return {"type": "entry", "text": f"  {text}", "entry_position": at, **fields}


# Small files


def _small_file(filesystem: FileSystem, file: ReadableFile, path: str, kind: str | None) -> Iterator[Item]:
    if file.size() > _SMALL_FILE_BYTES:
        yield _damage(0, None, f"{file.size()} bytes, more than such a file ever has", "")
        return
    try:
        if kind == "snapshot":
            yield from _snapshot(file.pread(file.size(), 0), path)
        elif kind == "seal":
            yield from _seal(file.pread(file.size(), 0), path)
        elif kind == "commit":
            yield from _commit_slots(file)
        else:
            yield from _checkpoint(filesystem, path, kind)
    except (CorruptRecord, FormatVersionError) as error:
        yield _damage(0, None, str(error), "")


def _snapshot(data: bytes, path: str) -> Iterator[Item]:
    from pylog.partition.producers.state import BatchTrace, ProducerStates

    for producer_id, entry in sorted(ProducerStates.decode(data, path).entries.items()):
        last = entry.batches[-1] if entry.batches else BatchTrace(-1, -1, -1, -1, -1)
        fields: Item = {
            "producer_id": producer_id,
            "producer_epoch": entry.epoch,
            **last._asdict(),
            "coordinator_epoch": entry.coordinator_epoch,
            "transaction_start": entry.transaction_start,
        }
        text = f"  producer {producer_id} epoch {entry.epoch}"
        if entry.batches:
            text += f", last batch: sequence {last.first_sequence}-{last.last_sequence}"
            text += f", offsets {last.first_offset}-{last.last_offset}"
        if entry.transaction_start is not None:
            text += f", transaction open since offset {entry.transaction_start}"
        yield {"type": "producer", "text": text, **fields}


def _seal(data: bytes, path: str) -> Iterator[Item]:
    from pylog.segment.seal import decode

    seal = decode(data, path)
    lists = ("positions", "header_crcs", "greatest_ms", "least_ms")
    aborted = None if seal.aborted is None else seal.aborted._asdict()
    fields = {**seal._asdict(), **{name: list(getattr(seal, name)) for name in lists}, "aborted": aborted}
    text = (
        f"  {count_text(len(seal.positions), 'batch')}, {seal.size_bytes} bytes, offsets {seal.first_offset}-{seal.last_offset}, "
        f"epochs {seal.least_epoch}-{seal.greatest_epoch}"
        + (f", {count_text(seal.aborted.entries, 'aborted transaction')}" if seal.aborted else "")
        + (f", of {seal.home}" if seal.home else "")
    )
    yield {"type": "seal", "text": text, **fields}


def _commit_slots(file: ReadableFile) -> Iterator[Item]:
    from pylog.partition.commit_slots import FILE_BYTES, latest, slots_in

    data = file.pread(FILE_BYTES, 0)
    for slot, (at, end, state) in enumerate(slots_in(data)):
        if state is None:
            yield _damage(at, end, "no valid commit slot (the other one counts; both are made again if lost)", "")
            continue
        counts = state == latest(data)
        pairs = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in state._asdict().items())
        text = f"  slot {slot}{' (published)' if counts else ''}: {pairs}"
        yield {"type": "commit_slot", "text": text, "slot": slot, "published": counts, **state._asdict()}


def _checkpoint(filesystem: FileSystem, path: str, kind: str | None) -> Iterator[Item]:
    from pylog.segment.kafka_checkpoint import read_checkpoint

    names = ("epoch", "start_offset") if kind == "epochs" else ("topic", "partition", "offset")
    for words in read_checkpoint(filesystem, path, len(names)):
        fields = dict(zip(names, words, strict=True))
        text = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in fields.items())
        yield {
            "type": "checkpoint",
            "text": f"  {text}",
            **{name: _number(name, word) for name, word in fields.items()},
        }


def _number(name: str, word: str) -> int | str:
    """The word as a number, unless it is a topic's name."""
    return int(word) if name != "topic" and re.fullmatch(r"-?[0-9]{1,20}", word, re.ASCII) else word
