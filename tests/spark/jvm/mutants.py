"""Damaged segments for the Java reader and the Python source: rows or a typed error, and the same
of both.

``python -m tests.spark.jvm.mutants --seconds 60 --seed 7`` reads as many as it can, and prints
where the two differ. ``PYLOG_KEEP=DIR`` keeps the partitions where they do.
"""

from __future__ import annotations

import argparse
import logging
import os
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from random import Random

from pylog.codec import read_header
from pylog.errors import CorruptRecord, FormatVersionError
from pylog.index.transaction_index import ENTRY, AbortedTransaction
from pylog.segment.naming import LOG, SEAL, TRANSACTION_INDEX
from pylog.spark.source.partition_range import PartitionRange
from tests.fuzz.mutate import BOUNDARIES, MUTATIONS, put_number
from tests.fuzz.record_targets import batch_places, batches_fields, mutate_payload, repair_batch, repair_batches
from tests.fuzz.segment_targets import repair_seal
from tests.spark.jvm.random_logs import TOPIC, random_log
from tests.spark.jvm.verdicts import COLUMNS, JavaReader, agree, compile_reader, pieces_of, python_verdict
from tests.spark.reading import KAFKA, planned

SEGMENT_BYTES_MAX = 40_000
AT_ONCE = 16  # targets that have a mutant in place of a file
IN_RECORDS = r"record \d|payload"
LEVELS = ("read_committed", "read_uncommitted")


@dataclass(frozen=True)
class Asked:
    """What of the rows: columns, or none and so only their number, or that as an aggregate, or
    totals."""

    columns: tuple[str, ...] = COLUMNS
    totals: bool = False
    count: bool = False
    trustHeaders: bool = True  # noqa: N815 - the option's name

    @property
    def is_trusting(self) -> bool:
        """Whether headers may answer, without a look at the records."""
        return self.trustHeaders and (self.totals or not self.columns)


AGGREGATES = (
    Asked((), totals=totals, count=count, trustHeaders=trusting)
    for totals, count in ((True, False), (False, True), (False, False))
    for trusting in (True, False)
)
ASKED = (Asked(), Asked(), *AGGREGATES)


@dataclass
class Tried:
    """What came of the mutants: how many of each kind of verdict, and those where the two readers
    differ."""

    kinds: Counter[str] = field(default_factory=Counter)
    different: list[str] = field(default_factory=list)

    @property
    def count(self) -> int:
        return self.kinds.total()


class Target:
    """The files of one partition: one is replaced by mutants, then restored."""

    def __init__(self, planned: PartitionRange) -> None:
        self.planned = planned
        self.piece = pieces_of([planned])[0]
        directory = Path(planned.source.directory)
        self.right = {
            path: path.read_bytes()
            for path in sorted(directory.iterdir())
            if path.suffix in (LOG, SEAL, TRANSACTION_INDEX) and 0 < path.stat().st_size <= SEGMENT_BYTES_MAX
        }

    def mutant(self, chance: Random) -> tuple[Path, bytes]:
        """One of its files, and what to put there."""
        path = chance.choice([*self.right])
        data = bytearray(self.right[path])
        for _ in range(chance.choice((1, 1, 1, 2, 3))):
            if path.suffix == SEAL:
                _mutate_any(chance, data)
            elif path.suffix == TRANSACTION_INDEX:
                _mutate_entries(chance, data)
            elif chance.random() < 0.6:
                _mutate_a_batch(chance, data)
            elif chance.random() < 0.4 and (fields := batches_fields(bytes(data))):
                put_number(data, *chance.choice(fields), chance.choice(BOUNDARIES))
            else:
                _mutate_any(chance, data)
        if path.suffix != TRANSACTION_INDEX and chance.random() < 0.9:
            (repair_seal if path.suffix == SEAL else repair_batches)(data)
        return path, bytes(data)

    def verdict_without_damage(self, path: Path, asked: Asked) -> str:
        """Python's, as if the file at ``path`` were as it was."""
        damaged = path.read_bytes()
        path.write_bytes(self.right[path])
        try:
            return python_verdict([self.planned], asked.columns, totals=asked.totals)
        finally:
            path.write_bytes(damaged)

    def planned_now(self) -> PartitionRange:
        """The range, of files that have the sizes that they have now."""
        last = self.piece["segments"][-1]
        if last["isClosed"]:
            return self.planned
        published = self.planned.published._replace(written_end=os.stat(last["path"]).st_size)
        return replace(self.planned, published=published)


def _mutate_any(chance: Random, data: bytearray) -> None:
    if data:
        chance.choice(MUTATIONS)(chance, data)


def _mutate_entries(chance: Random, data: bytearray) -> None:
    """Some become those of another producer of the index, from another offset on, or to another
    one.

    No entry before it decides its offsets: how many entries are read after such a one depends on
    the reader.
    """
    for _ in range(chance.choice((1, 3, 9))):
        entries = [AbortedTransaction(*each[1:]) for each in ENTRY.iter_unpack(data)]
        number = chance.randrange(len(entries))
        producer, first, last, stable = entries[number]
        decided = max((each.last_stable_offset for each in entries[:number]), default=first)
        following = entries[number + 1].last_offset if number + 1 < len(entries) else last + 1
        change = chance.randrange(3)
        if change == 0:
            producer = chance.choice(entries).producer_id
        elif change == 1:
            first = chance.choice((decided, chance.randrange(decided, max(last, decided + 1))))
        elif last + 1 < following:
            last = chance.randrange(last + 1, following)
        ENTRY.pack_into(data, number * ENTRY.size, 0, producer, first, last, stable)


def _mutate_a_batch(chance: Random, data: bytearray) -> None:
    """Mutate a record, behind its compression; length and checksum of the batch are right again."""
    places = batch_places(data)
    if places:
        start, end = chance.choice(places)
        batch = data[start:end]
        mutate_payload(chance, batch)
        repair_batch(batch)
        data[start:end] = batch


def targets(room: Path, chance: Random, count: int) -> list[Target]:
    """Random logs, sealed and not, and those of a broker."""
    found = []
    for number in range(count):
        path = room / str(number)
        random_log(path, chance, batches=chance.choice((5, 15)))
        if chance.random() < 0.5:
            for seal in path.glob(f"{TOPIC}-*/*{SEAL}"):
                seal.unlink()
        found += _planned(path, chance, subscribe=TOPIC)
    kafka = room / "kafka"
    shutil.copytree(KAFKA / "log", kafka)
    found += _planned(kafka, chance, subscribePattern="[^_].*")
    return [each for each in map(Target, found) if each.right and each.piece["segments"]]


def _planned(path: Path, chance: Random, **options: str) -> Iterator[PartitionRange]:
    for each in planned(path, isolationLevel=chance.choice(LEVELS), **options):
        if each.end - each.start > 3 and chance.random() < 0.3:
            yield replace(each, start=each.start + chance.randrange(1, each.end - each.start))
        else:
            yield each


def try_mutants(java: JavaReader, all_targets: list[Target], chance: Random, count: int, until: float) -> Tried:
    """Mutants of some targets, until so many were read or a time of the monotonic clock has
    come."""
    tried = Tried()
    while tried.count < count and time.monotonic() < until:
        some = chance.sample(all_targets, min(AT_ONCE, len(all_targets), count - tried.count))
        mutants = [(target, *target.mutant(chance), chance.choice(ASKED)) for target in some]
        try:
            for _, path, data, _ in mutants:
                path.write_bytes(data)
            for (target, path, _, asked), verdicts in zip(mutants, _verdicts(java, mutants), strict=True):
                _compare(tried, target, path, asked, *verdicts)
        finally:
            for target, path, *_ in mutants:
                path.write_bytes(target.right[path])
    return tried


def _verdicts(java: JavaReader, mutants: list[tuple[Target, Path, bytes, Asked]]) -> list[tuple[str, str]]:
    """What Java and Python say of each; they work at the same time. A plan reads indexes, and may
    refuse them."""
    plans = [target.planned_now() for target, *_ in mutants]
    refused: list[str | None] = []
    for (*_, asked), its in zip(mutants, plans, strict=True):
        refused.append(None)
        try:
            pieces = pieces_of([its])
        except (CorruptRecord, FormatVersionError) as error:
            refused[-1] = f"unplanned {error}"
            continue
        java.put(pieces, **asdict(asked))
    expected = [
        python_verdict([its], asked.columns, totals=asked.totals)
        for (*_, asked), its in zip(mutants, plans, strict=True)
    ]
    return [(why or java.answer(), says) for why, says in zip(refused, expected, strict=True)]


def _compare(tried: Tried, target: Target, path: Path, asked: Asked, found: str, expected: str) -> None:
    tried.kinds[found.split(maxsplit=1)[0]] += 1
    if agree(found, expected) or _may_differ(target, path, asked, found, expected):
        return
    number, its = len(tried.different), target.planned
    where = f"{path} {its.start} to {its.end} {its.isolation_level} {asked}"
    tried.different.append(f"{where}\n  Java   {found}\n  Python {expected}")
    if keep := os.environ.get("PYLOG_KEEP"):
        kept = Path(keep, f"{os.getpid()}-{number}")
        shutil.copytree(path.parent, kept / path.parent.name)
        (kept / "verdicts").write_text(tried.different[-1])
        (kept / "unchanged").write_bytes(target.right[path])


def _may_differ(target: Target, path: Path, asked: Asked, found: str, expected: str) -> bool:
    """A plan is stricter about seals than a task, which looks at some only if it meets a
    transaction.

    Which of two errors comes first depends on how many batches are decoded at once.

    Headers that are trusted may be those of records that are wrong. Of a segment with a seal, Java
    then reads nothing else to count records: it must find as many as if nothing were damaged. It
    looks at no timestamp.

    Without a seal, foreign bytes between two batches are damage for both. But the Python reader
    then opens the file again, and may find the next offset by the index, after them. In a log of
    pylog's that loses no offset. In Kafka's it might, so there it searches from the segment's
    start. Bytes after a closed segment's last batch are damage for one of them, or both.

    A batch before the plan's first offset may claim, under a right checksum, to reach it. A plan
    has no transactions that ended before that offset, so only the Python reader knows that the
    batch is of an aborted one. And it may meet the batch when it searches a segment of Kafka's from
    the start, after damage.
    """
    kinds = {found.split(maxsplit=1)[0], expected.split(maxsplit=1)[0]}
    if "unplanned" in kinds or kinds == {"corrupt", "unsupported"}:
        return True
    has_rows, is_sealed = found.startswith(("rows", "totals")), path.with_suffix(SEAL).exists()
    if has_rows and asked.count and asked.trustHeaders and is_sealed and "CRC " in expected:
        return found == target.verdict_without_damage(path, asked)
    if has_rows and asked.is_trusting and re.search(IN_RECORDS, expected):
        return True
    if has_rows and not asked.columns and not asked.totals and expected.startswith("unsupported"):
        return True
    if has_rows and (at := re.search(r" is damaged at position (\d+)", expected)):
        return path.suffix == LOG and int(at[1]) >= len(target.right[path])
    if "corrupt" not in kinds or not expected.startswith(("rows", "totals")):
        return False
    if path.suffix == LOG and _reaches_in(path.read_bytes(), target.right[path], target.planned.start):
        return True
    if is_sealed:
        at = re.search(r", position (\d+): ", found)
        return path.suffix == LOG and at is not None and int(at[1]) >= len(target.right[path])
    if target.planned.source.is_kafka:
        return False
    return not re.search(f"CRC |{IN_RECORDS}", found)  # a header that is none, or not the next one


def _reaches_in(data: bytes, right: bytes, start: int) -> bool:
    """Whether a batch of ``data`` begins before ``start`` and claims to reach it, and the one of
    ``right`` does not."""
    ends = dict(_offsets(right))
    return any(first < start <= last and ends.get(first, -1) < start for first, last in _offsets(data))


def _offsets(data: bytes) -> Iterator[tuple[int, int]]:
    """The first and the last offset of each batch."""
    for position, _ in batch_places(data):
        header = read_header(data, position)
        yield header.base_offset, header.last_offset


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=sys.maxsize)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--room", default=None)
    given = parser.parse_args()
    chance = Random(given.seed)
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory(dir=given.room) as room:
        classes = Path(room, "classes")
        classes.mkdir()
        with closing(JavaReader(compile_reader(classes))) as java:
            all_targets = targets(Path(room), chance, 40)
            tried = try_mutants(java, all_targets, chance, given.count, time.monotonic() + given.seconds)
    print(f"seed {given.seed}: {tried.count} mutants, {dict(tried.kinds)}, {len(tried.different)} differ")
    for each in tried.different[:40]:
        print(each)
    sys.exit(1 if tried.different else 0)


if __name__ == "__main__":
    main()
