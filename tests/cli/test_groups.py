"""``pylog groups list``, ``describe`` and ``delete``"""

from __future__ import annotations

import fcntl
import os
import re
import signal
import struct
import termios
from pathlib import Path
from typing import Any

import pytest

from pylog.clock import SystemClock
from pylog.consumer import Consumer
from pylog.log import Log
from pylog.model import OffsetAndMetadata, TopicPartition
from pylog.testing import produce_all
from tests.cli.conftest import Run, start

KAFKA_LOG = Path(__file__).parents[1] / "data" / "kafka-4.3.1" / "log"


@pytest.fixture
def orders(log: Log) -> Log:
    """Two partitions of five records; group ``billing`` has committed 3 of partition 0."""
    log.create_topic("orders", partitions=2)
    for number in range(2):
        produce_all(log, "orders", [b"v%d" % n for n in range(5)], partition=number)
    commit(log, "billing", 0, 3)
    return log


def commit(log: Log, group: str, number: int, offset: int, metadata: str = "") -> None:
    with Consumer(log, group_id=group) as consumer:
        consumer.assign([TopicPartition("orders", number)])
        consumer.commit({TopicPartition("orders", number): OffsetAndMetadata(offset, metadata)})


def member(log: Log, group: str = "billing", **options: Any) -> Consumer:
    """One that has joined and reads what it was given."""
    consumer = Consumer(log, group_id=group, **options)
    consumer.subscribe("orders")
    return consumer


# Listing


def test_list_names_groups_that_have_committed_or_have_members(pylog: Run, orders: Log) -> None:
    with member(orders, "audit"):
        assert pylog("groups", "list") == (0, "audit\nbilling\n", "")
        assert pylog("groups", "list", "--json").objects == [{"group": "audit"}, {"group": "billing"}]
    assert pylog("groups", "list").lines == ["billing"]


def test_a_log_without_groups_has_none_to_list(pylog: Run, log: Log) -> None:
    assert pylog("groups", "list") == (0, "", "")


def test_groups_of_kafkas_are_listed_and_described(pylog: Run) -> None:
    assert pylog("groups", "list", "--log", KAFKA_LOG).lines == ["golden-group", "golden-transactional-group"]
    (described,) = pylog("groups", "describe", "golden-group", "--json", "--log", KAFKA_LOG).objects
    assert [(p["topic"], p["partition"], p["offset"], p["metadata"]) for p in described["partitions"]] == [
        ("codec-none", 0, 10, ""), ("keyed", 0, 7, "seven"), ("keyed", 1, 12, "moved"),
    ]  # fmt: skip


# Describing


def test_describe_shows_progress_as_kafkas_tool_does(pylog: Run, orders: Log) -> None:
    ran = pylog("groups", "describe", "billing")
    assert (ran.code, ran.err) == (0, "")
    assert re.fullmatch(r"billing  Empty, generation \d+, 0 members", ran.lines[0])
    assert ran.lines[1] == ""
    assert [line.split() for line in ran.lines[2:]] == [
        ["TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID"],
        ["orders", "0", "3", "5", "2", "-", "-", "-"],
    ]


def test_describe_shows_members_and_who_reads_what(pylog: Run, orders: Log) -> None:
    with member(orders, client_id="left", group_instance_id="one"):
        ran = pylog("groups", "describe", "billing")
        (shown,) = orders.describe_group("billing").members
    assert "Stable" in ran.lines[0]
    assert ran.lines[0].endswith(", assignor cooperative-sticky, 1 member")
    host = shown.host
    assert [line.split() for line in ran.lines[3:5]] == [
        ["orders", "0", "3", "5", "2", shown.member_id, host, "left"],
        ["orders", "1", "-", "5", "-", shown.member_id, host, "left"],
    ]
    titles, cells = (line.split() for line in ran.lines[6:])
    assert titles == ["CONSUMER-ID", "INSTANCE-ID", "CLIENT-ID", "HOST", "PID", "JOINED", "ASSIGNED", "TARGET"]
    assert cells[:5] == [shown.member_id, "one", "left", host, str(os.getpid())]
    assert cells[6:] == ["orders(0,1)", "orders(0,1)"]


def test_describe_tells_a_static_member_whose_process_is_gone(pylog: Run, orders: Log) -> None:
    with member(orders, group_instance_id="one"):
        assert " gone " not in pylog("groups", "describe", "billing").out
        assert [at.is_alive for at in orders.describe_group("billing").members] == [True]
    (described,) = pylog("groups", "describe", "billing", "--json").objects
    assert [at["is_alive"] for at in described["members"]] == [False]
    ran = pylog("groups", "describe", "billing")
    assert "1 member" in ran.lines[0]
    assert f" {os.getpid()} gone " in ran.lines[-1]


def test_describe_as_json_while_partitions_move(pylog: Run, orders: Log) -> None:
    with member(orders, client_id="old"), member(orders, client_id="new"):  # the old one has not polled since
        (described,) = pylog("groups", "describe", "billing", "--json").objects
    members = {shown["client_id"]: shown for shown in described.pop("members")}
    assert (described["group"], described["state"], described["assignor"]) == (
        "billing",
        "Reconciling",
        "cooperative-sticky",
    )
    both = [{"topic": "orders", "partition": number} for number in range(2)]
    assert (members["old"]["assigned"], members["new"]["assigned"]) == (both, [])
    assert members["old"]["target"] + members["new"]["target"] in (both, both[::-1])
    assert members["old"]["pid"] == os.getpid()
    assert described["partitions"] == [
        {
            "topic": "orders", "partition": 0, "offset": 3, "metadata": "", "end_offset": 5, "lag": 2,
            "member_id": members["old"]["member_id"],
        },
        {
            "topic": "orders", "partition": 1, "offset": None, "metadata": None, "end_offset": 5, "lag": None,
            "member_id": members["old"]["member_id"],
        },
    ]  # fmt: skip


@pytest.mark.parametrize("command", [["describe"], ["delete"], ["describe", "--watch"]])
def test_a_group_that_is_not_there_is_code_3(pylog: Run, orders: Log, command: list[str]) -> None:
    code, out, err = pylog("groups", *command, "nope")
    assert (code, out, err.count("\n")) == (3, "", 1)
    assert "no group 'nope'" in err
    assert "'billing'" in err


def test_names_of_groups_and_members_never_steer_a_terminal(pylog: Run, orders: Log) -> None:
    name, client = "\x1b[31mred\n", "\x9b2J\u202e"
    with member(orders, name, client_id=client):
        listed, described = pylog("groups", "list"), pylog("groups", "describe", name)
        for ran in (listed, described, pylog("groups", "delete", name), pylog("groups", "describe", name + "?")):
            assert not re.search("[\x00-\x09\x0b-\x1f\x80-\x9f\u202e]", ran.out + ran.err)
        assert listed.lines[0] == "\\x1b[31mred\\n"
        assert "\\x9b2J\\u202e" in described.out
        (shown,) = pylog("groups", "describe", name, "--json").objects
    assert (shown["group"], shown["members"][0]["client_id"]) == (name, client)


# Watching


@pytest.mark.parametrize("interval", [[], ["--interval", "0.5"]])
def test_watch_looks_again_until_ctrl_c(
    pylog: Run, orders: Log, monkeypatch: pytest.MonkeyPatch, interval: list[str]
) -> None:
    slept = []

    def sleep(_: SystemClock, seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            raise KeyboardInterrupt
        commit(orders, "billing", 0, 3 + len(slept))

    monkeypatch.setattr(SystemClock, "sleep", sleep)
    ran = pylog("groups", "describe", "billing", "--watch", "--json", *interval)
    assert (ran.code, ran.err) == (130, "")
    assert [shown["partitions"][0]["lag"] for shown in ran.objects] == [2, 1, 0]
    assert slept == [0.5 if interval else 2.0] * 3


def test_watch_without_a_terminal_prints_one_after_another(
    pylog: Run, orders: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = iter([False, True])

    def sleep(_: SystemClock, seconds: float) -> None:
        if next(looks):
            raise KeyboardInterrupt

    monkeypatch.setattr(SystemClock, "sleep", sleep)
    once = pylog("groups", "describe", "billing").out
    assert pylog("groups", "describe", "billing", "--watch") == (130, f"{once}\n{once}\n", "")


def test_watch_ends_with_the_group(pylog: Run, orders: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SystemClock, "sleep", lambda _, seconds: orders.delete_group("billing"))
    ran = pylog("groups", "describe", "billing", "--watch", "--json")
    assert (ran.code, len(ran.objects)) == (3, 1)


@pytest.mark.processes
def test_watch_on_a_terminal_shows_what_changes_in_place(orders: Log, log_dir: Path) -> None:
    name = "\x1b]0;[red]x\x07"  # neither the terminal nor rich's markup takes it for its own
    commit(orders, name, 1, 1)
    parent, child = os.openpty()
    process = start(
        log_dir, "groups", "describe", name, "--watch", "--interval", "0.01", stdout=child, stderr=child, stdin=child
    )
    os.close(child)
    try:
        shown = _until(parent, r"orders +1 +1 +5 +4 ")
        assert shown.count(b"CONSUMER-ID") >= 1
        assert b"\\x1b]0;[red]x\\x07" in shown
        assert b"\x1b]0" not in shown
        commit(orders, name, 1, 4)
        assert b"\x1b[1A" in _until(parent, r"orders +1 +4 +5 +1 ")  # over what was there
        process.send_signal(signal.SIGINT)
        _until(parent, None)
        assert process.wait() == 130
    finally:
        process.kill()
        process.wait()
        os.close(parent)


@pytest.mark.processes
def test_watch_on_a_narrow_terminal_leaves_nothing_out(orders: Log, log_dir: Path) -> None:
    parent, child = os.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    with member(orders, client_id="the-name-of-a-client"):
        (shown,) = orders.describe_group("billing").members
        process = start(
            log_dir, "groups", "describe", "billing", "--watch", "--interval", "0.01",
            stdout=child, stderr=child, stdin=child,
        )  # fmt: skip
        os.close(child)
        try:
            text = _until(parent, r"orders\(0,1\)\s+orders\(0,1\)").decode()
        finally:
            process.kill()
            process.wait()
            os.close(parent)
    assert "…" not in text
    assert text.count(shown.member_id[:8]) >= 3
    assert shown.member_id not in text


def _until(terminal: int, pattern: str | None) -> bytes:
    """What a terminal receives until this is in it; with None, all of it."""
    received = b""
    while pattern is None or not re.search(pattern.encode(), received):
        try:
            piece = os.read(terminal, 1 << 16)
        except OSError:  # how Linux says that the other side is closed
            piece = b""
        if not piece:
            assert pattern is None, received
            break
        received += piece
    return received


@pytest.mark.parametrize("interval", ["0", "-1", "nan", "inf", "soon", "1e9"])
def test_an_interval_is_a_time_to_wait(pylog: Run, orders: Log, interval: str) -> None:
    assert pylog("groups", "describe", "billing", "--watch", f"--interval={interval}").code == 2


def test_an_interval_belongs_to_watch(pylog: Run, orders: Log) -> None:
    assert pylog("groups", "describe", "billing", "--interval", "1").code == 2


# Deleting


def test_delete_forgets_what_was_committed(pylog: Run, orders: Log) -> None:
    assert pylog("groups", "delete", "billing") == (0, "billing deleted\n", "")
    assert orders.groups() == []
    commit(orders, "billing", 0, 1)
    assert pylog("groups", "delete", "billing", "--json").objects == [{"group": "billing", "deleted": True}]


def test_a_group_with_members_is_not_deleted(pylog: Run, orders: Log) -> None:
    with member(orders):
        code, out, err = pylog("groups", "delete", "billing")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert f"process {os.getpid()}" in err
    assert orders.lag("billing") == {TopicPartition("orders", 0): 2}
