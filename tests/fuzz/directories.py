"""Whole log directories, damaged and forged, through everything that opens one: only typed errors,
each in time.

Files are mutated (checksums mended behind it, where they have any), cut, swapped, removed, or
replaced by links, FIFOs, sockets and directories; then the log is opened, verified, consumed,
dumped, and appended to. Nothing outside of it changes.
"""

from __future__ import annotations

import faulthandler
import json
import os
import random
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

from pylog.cli.dump import _files, dump_file
from pylog.cli.dumped_records import record_item
from pylog.cli.exits import UsageError
from pylog.cli.output import json_line, safe
from pylog.codec import RecordEncoder
from pylog.codec.batch import build_batch
from pylog.codec.format import GZIP, LZ4, NONE, ZSTD
from pylog.consumer import Consumer
from pylog.errors import CorruptRecord, PylogError
from pylog.log import Log
from pylog.model import ProducerRecord, TopicPartition
from pylog.storage import OsFileSystem
from tests.fuzz import engine
from tests.fuzz.file_targets import KAFKA, TARGETS, repair_slots, repair_snapshot, require_harmless
from tests.fuzz.mutate import Mutator
from tests.fuzz.record_targets import batches_fields, repair_batches
from tests.fuzz.segment_targets import repair_seal
from tests.fuzz.target import Target, require, shape_of
from tests.partition.logs import batch, marker, topic_of

NAME = "directories"
STEP_SLOW_S = 5.0
_READ_BYTES_MAX = 1 << 20
_OUTSIDE = b"nobody may change this"
_REPAIRS: dict[str, Target] = {
    ".log": Target(str, list, repair_batches, batches_fields),
    ".seal": Target(str, list, repair_seal),
    ".snapshot": Target(str, list, repair_snapshot),
    ".commit": Target(str, list, repair_slots, TARGETS["slots"].fields),
    ".json": Target(str, list, words=TARGETS["topic"].words),
    "checkpoint": Target(str, list, words=TARGETS["epochs"].words),
}


def build(root: Path) -> list[Path]:
    """The right logs: one of pylog's, with closed segments, transactions and every codec; one of
    Kafka's."""
    ours, kafkas = root / "ours", root / "kafkas"
    with Log(ours) as log:
        partition = topic_of(log, "t", partitions=2, index_interval_bytes=100)
        for number, codec in enumerate((NONE, GZIP, LZ4, ZSTD)):
            encoder = RecordEncoder(1 << 16)
            encoder.extend(1_700_000_000_000 + number, [b"value %d " % at * 8 for at in range(6)], [b"k"] * 6, 0)
            partition.log.append_batch(build_batch(encoder, codec=codec))
            partition.log.append_batch(batch(b"a", producer_id=9_999, epoch=0, sequence=number, transactional=True))
            partition.log.append_batch(marker(9_999, 0, commit=number == 1))
            if number < 3:
                partition.log.roll()
        log.partition("t", 1).append([ProducerRecord(b"alone")])
    (kafkas / "t-0").parent.mkdir(parents=True)
    shutil.copytree(KAFKA / "transactions-0", kafkas / "t-0")
    shutil.copy(KAFKA / "meta.properties", kafkas)
    return [ours, kafkas]


# Damage


def damage(log: Path, chance: random.Random, outside: Path) -> list[str]:
    """Change one to four things below ``log``; what was done."""
    return [_damage_one(log, chance, outside) for _ in range(chance.choice((1, 1, 2, 4)))]


def _damage_one(log: Path, chance: random.Random, outside: Path) -> str:
    found = (path for path in log.rglob("*") if path.is_file() and not path.is_symlink())
    files = sorted(path for path in found if path.stat().st_size <= _READ_BYTES_MAX)  # not what has grown before
    if not files:
        return "nothing left"
    path = chance.choice(files)
    name = str(path.relative_to(log))
    if chance.random() < 0.6:
        path.write_bytes(_mutant(path, chance, files))
        return f"mutated {name}"
    how, change = chance.choice(_CHANGES)
    change(path, chance.choice(files), chance, outside)
    return f"{how} {name}"


def _mutant(path: Path, chance: random.Random, files: list[Path]) -> bytes:
    data = path.read_bytes()
    target = next((target for kind, target in _REPAIRS.items() if path.name.endswith(kind)), Target(str, list))
    same_kind = [other.read_bytes() for other in files if other.suffix == path.suffix]
    mutator = Mutator(chance, [data], repair=target.repair, fields=target.fields, words=target.words)
    return mutator.mutant() if chance.random() < 0.9 else chance.choice(same_kind)


def _cut(path: Path, _other: Path, chance: random.Random, _outside: Path) -> None:
    os.truncate(path, chance.randrange(path.stat().st_size + 1))


def _grow(path: Path, _other: Path, chance: random.Random, _outside: Path) -> None:
    """A hole behind the end: a sparse file of any size costs nothing to make."""
    os.truncate(path, path.stat().st_size + chance.choice((1, 61, 4096, 1 << 26, 1 << 31, 1 << 40)))


def _swap(path: Path, other: Path, _chance: random.Random, _outside: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(other.read_bytes())
    other.write_bytes(data)


def _remove(path: Path, _other: Path, _chance: random.Random, _outside: Path) -> None:
    path.unlink()


def _rename(path: Path, _other: Path, chance: random.Random, _outside: Path) -> None:
    digits = chance.choice(("00000000000000000003", "99999999999999999999", "09223372036854775807", "x", "0" * 19))
    path.rename(path.with_name(f"{digits}{path.suffix or path.name}"))


def _link(path: Path, _other: Path, chance: random.Random, outside: Path) -> None:
    path.unlink()
    path.symlink_to(chance.choice((str(outside), "/dev/null", "/dev/zero", path.name, "nowhere", "..", "/")))


def _hard_link(path: Path, other: Path, _chance: random.Random, _outside: Path) -> None:
    if path != other:
        path.unlink()
        path.hardlink_to(other)


def _fifo(path: Path, _other: Path, _chance: random.Random, _outside: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _socket(path: Path, _other: Path, _chance: random.Random, _outside: Path) -> None:
    path.unlink()
    here = os.getcwd()
    os.chdir(path.parent)  # a socket's path has 107 characters at most
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


def _directory(path: Path, _other: Path, _chance: random.Random, _outside: Path) -> None:
    path.unlink()
    (path / "inner").mkdir(parents=True)


def _directory_as_file(path: Path, _other: Path, _chance: random.Random, _outside: Path) -> None:
    parent = path.parent
    shutil.rmtree(parent)
    if parent.parent.exists():
        parent.write_bytes(b"a file")


_CHANGES: list[tuple[str, Callable[[Path, Path, random.Random, Path], None]]] = [
    ("cut", _cut), ("grew", _grow), ("swapped", _swap), ("removed", _remove), ("renamed", _rename), ("linked", _link),
    ("linked hard", _hard_link), ("FIFO for", _fifo), ("socket for", _socket), ("directory for", _directory),
    ("file for the directory of", _directory_as_file),
]  # fmt: skip


# Use


def use(log: Path) -> Iterator[str]:
    """Every way into a directory; what came of each. What is no typed error comes out."""
    for step in STEPS:
        started = time.perf_counter()
        try:
            said = step(log)
        except PylogError as error:
            require(str(error), "an error without words")
            said = f"{type(error).__name__}: {error}"
        seconds = time.perf_counter() - started
        require(seconds < STEP_SLOW_S, f"{step.__name__} took {seconds:.1f} s")
        yield f"{step.__name__} {said}"


def _verify(path: Path) -> str:
    with Log(path, create=False, read_only=True) as log:
        problems = [found for found, _ in zip(log.find_problems(), range(10_000), strict=False)]
    require(len(problems) < 10_000, "verifying does not end")
    for problem in problems:
        require_harmless(safe(str(problem)), "a problem")
    return f"{min(len(problems), 3)} problems"


def _consume(path: Path, isolation_level: str = "read_uncommitted") -> str:
    with Log(path, create=False, read_only=True) as log:
        return "; ".join(_read_all(log, topic, isolation_level) for topic in log.topics()[:5])


def _consume_committed(path: Path) -> str:
    return _consume(path, "read_committed")


def _read_all(log: Log, topic: str, isolation_level: str) -> str:
    count = 0
    said = "to the end"
    for number in log.describe_topic(topic).numbers[:5]:
        partition = TopicPartition(topic, number)
        try:
            with Consumer(log, auto_offset_reset="earliest", isolation_level=isolation_level) as consumer:
                consumer.assign([partition])
                for _ in range(200):  # beyond damage, as a program does that must have the rest
                    try:
                        records = consumer.poll(0.0)
                    except CorruptRecord as damage:
                        said = "damaged"
                        behind = damage.facts.get("next_offset")
                        if behind is None:
                            break
                        consumer.seek(partition, behind)
                        continue
                    if not records:
                        break
                    count += len(records)
                consumer.seek_to_time(1_700_000_000_003, partition)
                consumer.poll(0.0)
        except PylogError as error:
            said = type(error).__name__
    return f"{'records' if count else 'nothing'} {said}"


def _dump(path: Path) -> str:
    filesystem, lines = OsFileSystem(), 0
    try:
        for name in _files(filesystem, str(path)):
            try:
                for item in dump_file(filesystem, name, record_item):
                    require_harmless(safe(item.pop("text")), "a line")
                    require(json_line(item).isascii(), "JSON that is not ASCII")
                    lines += 1
                    if lines > 20_000:
                        return "very many lines"  # a sparse index has as many as it has zeros
            except (PylogError, FileNotFoundError):  # of a link that leads nowhere
                continue
    except (UsageError, FileNotFoundError):
        return "no files"
    return "lines"


def _append(path: Path) -> str:
    with Log(path, create=False) as log:
        for topic in log.topics()[:2]:
            partition = log.partition(topic, 0)
            end = partition.append([ProducerRecord(b"appended", b"k")]).base_offset
            (record,) = partition.read(end, max_records=1, max_bytes=1 << 20, isolation_level="read_uncommitted")
            require(record.value == b"appended", "what was appended is not what is read")
            partition.log.roll()
        log.manager.next_producer_id()
    return "appended"


STEPS = (_verify, _consume, _consume_committed, _dump, _append)


# Runs


@cache
def _workplace() -> Path:
    """In memory where there is such a place: syncing costs nothing there."""
    memory = Path("/dev/shm")
    place = Path(tempfile.mkdtemp(prefix="pylog-fuzz-", dir=memory if os.access(memory, os.W_OK) else None))
    build(place / "right")
    return place


def one(seed: int, number: int) -> tuple[list[str], list[str]]:
    """The directory of this number: what was done to it, and what came of using it."""
    place, chance = _workplace(), random.Random(f"{seed}-{number}")
    log, outside = place / "log", place / "outside"
    outside.write_bytes(_OUTSIDE)
    shutil.copytree(place / "right" / ("kafkas" if number % 4 == 3 else "ours"), log, symlinks=True)
    try:
        done = damage(log, chance, outside)
        try:
            said = list(use(log))
            require(outside.read_bytes() == _OUTSIDE, "a file outside the log was changed")
        except Exception as error:
            error.args = (f"after {done}: {error}",)
            raise
        return done, said
    finally:
        if log.is_dir():
            shutil.rmtree(log)
        else:
            log.unlink()  # a file was put in its place


def run(order: engine.Order) -> engine.Report:
    """As many directories as ``order`` says. A finding's input is the seed and the number of the
    directory."""
    with engine.quiet():
        return _run(order)


def _run(order: engine.Order) -> engine.Report:
    report, seen = engine.Report(NAME, order.seed), set[str]()
    base_bytes, started = 0, time.perf_counter()
    scratch = engine.Scratch(order.scratch)
    try:
        while report.executions < order.executions and report.seconds < order.seconds:
            engine.guard(order)
            made = json.dumps({"seed": order.seed, "number": report.executions}).encode()
            scratch.put(made)
            before = time.perf_counter()
            try:
                _, said = one(order.seed, report.executions)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
                words = engine.words(error)
                if shape_of(words) not in seen:
                    engine.note(order, report, made, words)
                seen.add(shape_of(words))
            else:
                report.values += not any(": " in line for line in said)
                seen.update(map(shape_of, said))
            report.slowest_ms = max(report.slowest_ms, (time.perf_counter() - before) * 1000)
            report.executions += 1
            report.seconds = time.perf_counter() - started
            report.shapes = len(seen)
            base_bytes = base_bytes or engine.peak_bytes()
            report.grown_bytes = engine.peak_bytes() - base_bytes
            if len(report.findings) >= engine.FINDINGS_MAX:
                break
        faulthandler.cancel_dump_traceback_later()
    finally:
        shutil.rmtree(_workplace())
        _workplace.cache_clear()
    return report


def replay(path: Path) -> int:
    """One directory again, from what ``run`` wrote."""
    made = json.loads(path.read_text())
    try:
        done, said = one(made["seed"], made["number"])
        print("\n".join([*done, *said]))
    finally:
        shutil.rmtree(_workplace())
    return 0
