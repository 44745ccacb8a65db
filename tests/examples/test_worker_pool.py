"""The example of examples/worker_pool, run small: real processes, kills, and its own check that
nothing is lost."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from pylog import Consumer, Log, Producer, Record

if TYPE_CHECKING:
    from scaler import Scaler

EXAMPLE = Path(__file__).parents[2] / "examples" / "worker_pool"
SMALL = ("--seconds", "3", "--rate", "100", "--rush", "4", "--partitions", "4", "--max", "3", "--work-ms", "1")
SENT = 600  # of these: 100 in the first second, 400 in the second, 100 in the third


@pytest.fixture(autouse=True)
def modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """The example's files import each other as scripts of one directory do."""
    monkeypatch.syspath_prepend(EXAMPLE)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    from orders import LOG, TOPIC

    with Log(tmp_path / LOG) as opened:
        opened.create_topic(TOPIC, partitions=2)
        yield opened


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, str(EXAMPLE / "run.py"), *map(str, arguments)]


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*arguments), capture_output=True, text=True, timeout=100)


def figure(output: str, name: str) -> int:
    found = re.search(rf"^{name} +([\d,]+)", output, re.MULTILINE)
    assert found is not None, output
    return int(found[1].replace(",", ""))


@pytest.mark.processes
@pytest.mark.slow
def test_nothing_is_lost_when_workers_are_killed_and_little_is_handled_twice(tmp_path: Path) -> None:
    from handled import Handled
    from worker import BATCH

    done = run(*SMALL, "--high", "10", "--kill-every", "0.8", "--seed", "1", "--directory", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert figure(done.stdout, "lost") == 0
    assert figure(done.stdout, "sent") == figure(done.stdout, "handled") == SENT
    killed = done.stdout.count("killing")
    assert killed >= 1
    assert done.stdout.count("in place of one that is gone") >= killed - 1  # the last may come when all is handled
    assert figure(done.stdout, "handled twice") <= killed * BATCH
    assert "\x1b" not in done.stdout
    with Handled(tmp_path) as handled:
        assert handled.missing(SENT) == 0
        assert handled.missing(SENT + 1) == 1


@pytest.mark.processes
@pytest.mark.slow
def test_nothing_is_handled_twice_when_workers_only_come_and_go() -> None:
    done = run(*SMALL, "--high", "1", "--work-ms", "5")  # more work than one worker does in time
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("started worker-") >= 2
    assert figure(done.stdout, "handled") == SENT
    assert figure(done.stdout, "handled twice") == 0


@pytest.mark.processes
@pytest.mark.slow
def test_an_interrupted_run_ends_its_processes_and_says_so() -> None:
    with subprocess.Popen(command(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "member" in line:
                break
        process.send_signal(signal.SIGINT)
        # The pipe of errors is the children's, too: this returns when the last of them has ended.
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.strip() == "interrupted"


def test_a_worker_that_is_being_started_when_the_run_is_interrupted_is_ended_with_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It went on, and complained that the log was gone."""
    import pool

    ended = []

    class Starting:
        stdout = None

        def __init__(self, *_: object, **__: object) -> None:
            signal.raise_signal(signal.SIGINT)

        def terminate(self) -> None:
            ended.append(self)

        def wait(self, _: float) -> None:
            pass

    monkeypatch.setattr(pool.subprocess, "Popen", Starting)
    with pytest.raises(KeyboardInterrupt), pool.Pool(tmp_path, 1.0, lambda text: None) as workers:
        workers.keep(3, "for a while")
    assert len(ended) == 1


@pytest.mark.processes
def test_a_worker_that_fails_is_named(tmp_path: Path) -> None:
    from pool import ChildFailed, Pool

    def run_until_one_fails() -> None:
        with Pool(tmp_path, 1.0, lambda text: None) as pool:
            pool.keep(1, "to see it fail")  # there is no log
            while True:
                os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
                pool.check()

    with pytest.raises(ChildFailed, match="worker-1 ended with exit code 1"):
        run_until_one_fails()


@pytest.mark.processes
def test_the_sender_s_count_is_there_once_it_has_ended_and_stays(log: Log) -> None:
    from pool import Pool

    with Pool(log.path.parent, 1.0, lambda text: None) as pool:
        pool.start_sender("--seconds=0.1", "--rate=100", "--rush=1")
        while pool.sent() is None:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
        assert [pool.sent(), pool.sent()] == [10, 10]


@pytest.mark.processes
def test_a_directory_that_has_the_topic_already_is_refused(log: Log) -> None:
    done = run("--directory", log.path.parent)
    assert done.returncode == 1
    assert "a directory of its own" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "wrong", [("--rate", "0"), ("--partitions", "x"), ("--min", "3", "--max", "2"), ("--rat", "1")]
)
def test_wrong_options_are_refused(
    wrong: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from run import parse_arguments

    monkeypatch.setattr("sys.argv", ["run.py", *wrong])
    with pytest.raises(SystemExit, match="2"):
        parse_arguments()
    assert wrong[0] in capsys.readouterr().err


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_lost_order_makes_the_exit_code_1(tmp_path: Path, is_lost: bool, capsys: pytest.CaptureFixture[str]) -> None:
    from handled import Handled
    from orders import Order
    from run import summarize

    pool = SimpleNamespace(started=1, stopped=1, killed=0)
    status = SimpleNamespace(rebalances=2)
    with Handled(tmp_path) as handled:
        for number in (0, 1, 3) if is_lost else (0, 1, 2):
            handled.add(record(number), Order(number, "c", 5), "worker-1")
        handled.add(record(1), Order(1, "c", 5), "worker-2")
        assert summarize(pool, handled, 3, status) == int(is_lost)
    output = capsys.readouterr().out
    assert figure(output, "lost") == int(is_lost)
    assert figure(output, "handled twice") == 1
    assert ("ORDERS WERE LOST" in output) == is_lost


def record(offset: int) -> Record:
    return Record("orders", 0, offset, 0, b"c", b"", ())


def test_an_order_survives_its_encoding() -> None:
    from orders import decode, encode, order

    sent = encode(order(17))
    assert decode(Record("orders", 0, 0, 0, sent["key"], sent["value"], ())) == order(17)
    assert order(17) != order(18)


def test_the_rush_is_in_the_middle_third() -> None:
    from sender import orders_due

    assert [orders_due(elapsed_s, 30.0, 10.0, 5.0) for elapsed_s in (0, 10, 15, 20, 30, 40)] == [
        0, 100, 350, 600, 700, 700,
    ]  # fmt: skip


@pytest.fixture
def scaler() -> Scaler:
    from scaler import Scaler

    return Scaler(least=1, most=3, high=100, low=10, now_s=0.0)


def test_a_large_lag_brings_one_worker_at_a_time_up_to_the_most(scaler: Scaler) -> None:
    assert scaler.decide(1, 1_000, 1.0) == 1  # the first has only just been started
    assert scaler.decide(1, 1_000, 2.0) == 2
    assert scaler.decide(2, 1_000, 3.0) == 2
    assert scaler.decide(2, 1_000, 4.0) == 3
    assert scaler.decide(3, 1_000, 10.0) == 3


def test_workers_go_when_the_lag_has_been_small_for_a_while_down_to_the_fewest(scaler: Scaler) -> None:
    assert scaler.decide(3, 31, 5.0) == 3
    assert scaler.decide(3, 0, 7.9) == 3
    assert scaler.decide(3, 0, 8.0) == 2
    assert scaler.decide(2, 0, 10.9) == 2
    assert scaler.decide(2, 0, 11.0) == 1
    assert scaler.decide(1, 0, 99.0) == 1


def test_what_a_group_does_is_seen_from_outside(log: Log) -> None:
    from orders import GROUP, TOPIC
    from status import Watch

    watch = Watch(log)
    with Producer(log) as producer:
        for partition in (0, 0, 0, 1):
            producer.send(TOPIC, b"v", partition=partition)
    status = watch.look()
    assert (status.members, status.sent, status.handled, status.lag) == ([], 4, 0, 4)
    with Consumer(log, group_id=GROUP, client_id="worker-1", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(TOPIC)
        assert watch.look().lag == 4  # given out, but not committed
        consumer.poll()
        consumer.commit(dict.fromkeys(consumer.assignment(), 1))
        status = watch.look()
    assert [member[:] for member in status.members] == [("worker-1", os.getpid(), [0, 1], [])]
    assert [partition[:] for partition in status.partitions] == [(0, "worker-1", 1, 3), (1, "worker-1", 1, 1)]
    assert (status.handled, status.lag) == (2, 2)
    assert watch.look().members == []


def test_no_control_characters_of_a_member_s_name_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    from status import Member, Progress, Status
    from view import LINE_EVERY_S, Lines

    name = "\x1b[2J\u202e"
    status = Status(LINE_EVERY_S, [Member(name, 1, [0], [])], [Progress(0, name, 1, 4)], 2, 0.0, 0.0)
    Lines().show(status)
    shown = capsys.readouterr().out
    assert "1 member, lag 3, 0 sent/s, 0 handled/s, 2 rebalances | ?[2J?: 0" in shown
    assert all(character.isprintable() for character in shown.replace("\n", ""))


def test_the_picture_shows_who_reads_what() -> None:
    console = pytest.importorskip("rich.console").Console(width=100, file=StringIO())
    from status import Member, Progress, Status
    from view import picture

    members = [Member("worker-1", 4711, [0], [1])]
    status = Status(1.0, members, [Progress(0, "worker-1", 1, 51), Progress(1, "\x1b", 2, 2)], 2, 7.0, 0.0)
    console.print(picture(status, ["  0.5 s  started worker-1: why not"]))
    shown = console.file.getvalue()
    assert re.search(r"worker-1 +4711 +0 +1 +50\b", shown)
    assert re.search(r"0 +worker-1 +1 +51 +50 +█{15} ", shown)
    assert re.search(r"1 +\? +2 +2 +0 ", shown)
    assert "started worker-1: why not" in shown
