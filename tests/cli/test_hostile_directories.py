"""Directories that somebody broke: every command answers with its records, a typed error or a
problem, never otherwise."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest

from pylog.consumer import Consumer
from pylog.log import Log
from pylog.testing import produce_all
from tests.cli.conftest import Run
from tests.partition.logs import batch, marker, topic_of

KAFKA_LOG = Path(__file__).parents[1] / "data" / "kafka-4.3.1" / "log"
COMMANDS = (
    ("topics", "describe"),
    ("verify",),
    ("stats",),
    ("dump", "{log}", "--records"),
    ("consume", "t", "--from-beginning", "--isolation-level", "read_committed"),
    ("consume", "t", "--from-time", "1700000000005"),
)
GROUP_COMMANDS = (
    ("groups", "list"),
    ("groups", "describe", "g"),
    ("groups", "reset", "g", "--to-earliest"),
    ("dump", "{log}", "--offsets-decoder"),
    ("dump", "{log}", "--transaction-log-decoder"),
    ("verify",),
    ("consume", "t", "--group", "g", "--from-beginning"),
    ("groups", "reset", "g", "--shift-by", "-1", "--execute"),
    ("groups", "delete", "g"),
)
ROUNDS = 12


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ours") / "log"
    with Log(path) as log:
        partition = topic_of(log, "t", index_interval_bytes=100)
        for number in range(3):
            produce_all(log, "t", [(b"k", b"value %d" % at) for at in range(5)])
            partition.log.append_batch(batch(b"a", producer_id=9_999, epoch=0, sequence=number, transactional=True))
            partition.log.append_batch(marker(9_999, 0, commit=number == 1))
            if number < 2:
                partition.log.roll()
    return path


@pytest.fixture(scope="module")
def kafkas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("kafkas") / "log"
    shutil.copytree(KAFKA_LOG / "transactions-0", path / "t-0")
    shutil.copy(KAFKA_LOG / "meta.properties", path)
    return path


@pytest.fixture(scope="module")
def groups(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A group with commits of several, and a member that died."""
    path = tmp_path_factory.mktemp("groups") / "log"
    with Log(path) as log:
        log.create_topic("t", partitions=2)
        produce_all(log, "t", [b"v"] * 5, partition=0)
        for group in ("g", "h"):
            for offset in range(3):
                log.reset_offsets(group, ["t"], to=offset)
        with Consumer(log, group_id="g", auto_offset_reset="earliest") as consumer:
            consumer.subscribe("t")
            consumer.poll()
            shutil.copytree(path, path.with_name("copy"))
    return path.with_name("copy")


def break_something(log: Path, chance: random.Random) -> str:
    """Change one file or name below ``log``; what was done."""
    path = chance.choice(sorted(path for path in log.rglob("*") if path.is_file()))
    data = bytearray(path.read_bytes())
    how = chance.choice(["bits", "zeros", "noise", "cut", "grow", "remove", "directory", "swap", "number"])
    at = chance.randrange(max(len(data), 1))
    if how == "bits" and data:
        data[at] ^= 1 << chance.randrange(8)
    elif how == "zeros":
        data[at : at + 64] = bytes(len(data[at : at + 64]))
    elif how == "noise":
        data[at : at + 64] = chance.randbytes(len(data[at : at + 64]))
    elif how == "cut":
        del data[at:]
    elif how == "grow":
        data += chance.randbytes(chance.randrange(1, 200))
    elif how == "number" and len(data) >= 8:
        data[at : at + 4] = chance.choice([b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\xff\xff\xff\xff", b"\0\0\0\0"])
    elif how == "swap":
        data = bytearray(chance.choice(sorted(p for p in log.rglob("*") if p.is_file())).read_bytes())
    path.unlink()
    if how == "directory":
        path.mkdir()
    elif how != "remove":
        path.write_bytes(data)
    return f"{how} at {at} of {path.relative_to(log)}"


@pytest.mark.slow
@pytest.mark.parametrize(("origin", "commands"), [("ours", COMMANDS), ("kafkas", COMMANDS), ("groups", GROUP_COMMANDS)])
def test_whatever_is_broken_every_command_answers(
    pylog: Run,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    seed: int,
    origin: str,
    commands: tuple[tuple[str, ...], ...],
) -> None:
    chance = random.Random(seed)
    for number in range(ROUNDS):
        log = Path(shutil.copytree(request.getfixturevalue(origin), tmp_path / str(number)))
        done = [break_something(log, chance) for _ in range(chance.choice([1, 1, 2, 5]))]
        for command in commands:
            ran = pylog(
                *(word.format(log=log) for word in command), "--json", *(() if command[0] == "dump" else ("--log", log))
            )
            assert ran.code in range(7), (done, command, ran)
            assert "internal error" not in ran.err, (done, command, ran)
            assert all(line.startswith("pylog: ") for line in ran.err.splitlines()), (done, command, ran)
            assert all(json.loads(line) for line in ran.lines), (done, command, ran)
        shutil.rmtree(log)


@pytest.mark.slow
@pytest.mark.parametrize("origin", ["ours", "kafkas"])
@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_what_verify_finds_good_reads_as_it_was(
    pylog: Run, request: pytest.FixtureRequest, tmp_path: Path, seed: int, origin: str, isolation: str
) -> None:
    """All of it, or up to where it ends now: what was lost with the newest commit slot, for
    example."""
    consume = ("consume", "t", "--from-beginning", "--json", "--isolation-level", isolation, "--log")
    before = pylog(*consume, request.getfixturevalue(origin)).out
    assert before
    chance = random.Random(seed)
    for number in range(ROUNDS):
        log = Path(shutil.copytree(request.getfixturevalue(origin), tmp_path / str(number)))
        done = [break_something(log, chance) for _ in range(chance.choice([1, 1, 2]))]
        if pylog("verify", "--log", log).code == 0:
            ran = pylog(*consume, log)
            assert ran.code == 0, (done, ran)
            assert before.startswith(ran.out), done
        shutil.rmtree(log)
