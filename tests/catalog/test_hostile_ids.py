"""Names of groups and of producers: each has a path of its own inside the log's directory, or is
refused."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from pylog import Log, Producer, TopicPartition
from pylog.catalog import Layout
from pylog.catalog.layout import ENCODED_BYTES_MAX, check_encodable, decoded_group, encoded_group
from pylog.errors import ConfigError, PylogError
from pylog.group.directory import check_group
from pylog.producer.named import check_name, producer_id_of
from pylog.transaction.directory import check_transactional_id
from tests.catalog.hostile_names import hostile_names

COUNT = 100_000
UNESCAPED = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789._-")
CAPITALS = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ")


def with_twins(names: Iterator[str]) -> Iterator[str]:
    """Each name, and others that are the same but for letters' case, or for what escaping does."""
    for name in names:
        yield from (name, name.swapcase(), name.lower(), name.replace("%", "%25"))
        if is_text(name):
            yield encoded_group(name)
            yield encoded_group(name).lower()
            yield encoded_group(name).replace("%2E", ".")


def is_text(name: str) -> bool:
    """Surrogates, of which ``sys.argv`` may have some, are no text."""
    return not any("\ud800" <= character <= "\udfff" for character in name)


def distinct(names: Iterator[str], count: int) -> list[str]:
    return list(itertools.islice(dict.fromkeys(itertools.islice(names, 3 * count)), count))


def length_of(name: str, ignores_case: bool) -> int:
    unescaped = UNESCAPED if ignores_case else UNESCAPED | CAPITALS
    return sum(1 if byte in unescaped else 3 for byte in name.encode()) + 2 * name.startswith(".")


@pytest.mark.slow
@pytest.mark.parametrize("ignores_case", [False, True])
@pytest.mark.one_in(4)
def test_every_id_is_refused_or_has_one_path_of_its_own(tmp_path: Path, seed: int, ignores_case: bool) -> None:
    """Also to a filesystem that takes capitals for the same letters."""
    root = str(tmp_path / "log")
    layout = Layout(root)
    layout.ignores_case = ignores_case
    groups, transactions, producers = (f"{root}/.pylog/{each}/" for each in ("groups", "transactions", "producers"))
    owner: dict[str, str] = {}
    producer_ids: dict[int, str] = {}
    refused = 0
    names = distinct(with_twins(hostile_names(random.Random(seed))), COUNT)
    assert len(names) == COUNT
    for name in names:
        may_be_taken = is_text(name) and 1 <= length_of(name, ignores_case) <= ENCODED_BYTES_MAX
        for check in (check_group, check_transactional_id, check_name):
            assert is_taken(check, name, ignores_case) == may_be_taken, name
        if not may_be_taken:
            refused += 1
            continue
        file = layout.group(name).removeprefix(groups)
        assert layout.transaction(name) == transactions + file
        assert layout.named_producer(name) == f"{producers}{file}.lock"
        assert file.isascii()
        assert file.isprintable()
        assert "/" not in file
        assert file[0] != "."
        assert len(file) <= ENCODED_BYTES_MAX
        assert owner.setdefault(file.lower() if ignores_case else file, name) == name
        assert decoded_group(file, ignores_case) == name
        assert producer_ids.setdefault(producer_id_of(name), name) == name
    assert 1_000 < refused < COUNT // 2


def is_taken(check: Callable[[object, bool], str], name: str, ignores_case: bool) -> bool:
    try:
        return check(name, ignores_case) == name
    except ConfigError:
        return False


@pytest.mark.parametrize("value", [None, 7, b"a", "", "\udcff", "a" * 201, "A" * 67, "." + "a" * 198, "é" * 34])
def test_what_is_no_id_is_refused_with_what_would_be_one(value: object) -> None:
    with pytest.raises(ConfigError, match=r"an id is text of 1 to 200 bytes .* counts three"):
        check_encodable(value, "option", "an id", ignores_case=True)


@pytest.mark.parametrize("value", ["a" * 200, "A" * 200, "." + "a" * 197, "é" * 33, "\0", "/", "..", "%2e"])
def test_what_is_one_is_taken(value: str) -> None:
    assert check_encodable(value, "option", "an id") == value


def test_files_of_a_kafka_s_id_that_no_producer_can_have_are_nowhere() -> None:
    layout = Layout("/log")
    nobodys = {layout.transaction(name) for name in ("", "a" * 201, "A" * 201, "é" * 300)}
    assert nobodys == {"/log/.pylog/transactions/%"}
    assert decoded_group("%") is None


@pytest.mark.slow
def test_hostile_ids_make_files_inside_the_root_only_and_do_not_meet(tmpfs_dir: Path, seed: int) -> None:
    """What is made for them, where it really is; each has its own state, and is told by its own
    name."""
    (tmpfs_dir / "outside").write_bytes(b"as it was")
    names = distinct(with_twins(hostile_names(random.Random(seed))), 2_000)
    some = random.Random(seed).sample(names, 150)
    taken = set()
    root = tmpfs_dir / "log"
    with Log(root) as log, ExitStack() as open_ones:
        log.create_topic("t")
        for number, name in enumerate(some):
            try:
                producer = Producer(log, transactional_id=name)
            except ConfigError:
                with pytest.raises(ConfigError):
                    Producer(log, name=name)
                with pytest.raises(ConfigError):
                    log.reset_offsets(name, ["t"], to="earliest")
                continue
            taken.add(name)
            producer.init_transactions()
            with producer.transaction():
                producer.send("t", b"%d" % number)
            producer.close()
            open_ones.enter_context(Producer(log, name=name))  # all of them at once
            log.reset_offsets(name, offsets={TopicPartition("t", 0): number})
        assert len(taken) > 75
        assert set(log.transactions()) == set(log.groups()) == taken
        for number, name in enumerate(some):
            if name in taken:
                progress = log.describe_group(name).partitions[TopicPartition("t", 0)]
                assert progress.committed is not None
                assert progress.committed.offset <= number
                assert log.describe_transaction(name).open_in == {}
        made = [Path(where, each) for where, inner, files in os.walk(root) for each in (*inner, *files)]
        assert [path for path in made if path.resolve() != path] == []
        private = root / ".pylog"
        assert {decoded_group(each) for each in os.listdir(private / "transactions")} == taken
        assert {decoded_group(each) for each in os.listdir(private / "groups")} == taken
        assert {decoded_group(each.removesuffix(".lock")) for each in os.listdir(private / "producers")} >= taken
        for name in some:
            if name not in taken:
                with pytest.raises(PylogError):
                    log.describe_group(name)
    assert sorted(os.listdir(tmpfs_dir)) == ["log", "outside"]
    assert (tmpfs_dir / "outside").read_bytes() == b"as it was"
