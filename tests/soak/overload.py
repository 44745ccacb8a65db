"""A group on a machine that has twice as much to do as it has processors: nobody is expelled, and
nothing is divided anew.

Members poll and commit; half of them may take five minutes between two polls, as by default, the
others ten seconds. Whoever loses a partition, or sees another generation than the one that all
joined, makes the run fail.

    python -m tests.soak overload --seconds 3600 [--directory DIR]
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections import Counter
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from pylog import Consumer, Log, Producer
from pylog.errors import CommitFailed, GroupNotFound
from tests.soak.part import Outcome

GROUP, TOPIC = "readers", "events"
MEMBERS = 8
PARTITIONS = 16
BUSY_PER_PROCESSOR = 2
MAX_POLL_INTERVAL_MS = (300_000, 10_000)  # by turns
SEND_EVERY_S = 0.02
PATIENCE_S = 120.0


def run(seconds: float, seed: int, directory: Path) -> Outcome:
    """One run in an empty directory. Nothing is drawn, so the seed is of no use."""
    context = multiprocessing.get_context("spawn")
    with Log(directory / "log") as log:
        log.create_topic(TOPIC, partitions=PARTITIONS)
        busy = [_started(context, _be_busy) for _ in range(BUSY_PER_PROCESSOR * (os.cpu_count() or 1))]
        members = []
        for number in range(MEMBERS):
            here, there = context.Pipe()
            interval_ms = MAX_POLL_INTERVAL_MS[number % len(MAX_POLL_INTERVAL_MS)]
            members.append((_started(context, _be_member, log.path, interval_ms, there), here))
        try:
            return _watched(log, seconds, members)
        finally:
            for process in [*busy, *(process for process, _ in members)]:
                process.kill()
                process.join()


def _started(context: Any, function: Any, *arguments: Any) -> BaseProcess:
    process: BaseProcess = context.Process(target=function, args=arguments, daemon=True)
    process.start()
    return process


def _watched(log: Log, seconds: float, members: list[tuple[BaseProcess, Connection]]) -> Outcome:
    figures: Counter[str] = Counter()
    problems = []
    generation = _generation_of_all(log)
    began = time.monotonic()
    with Producer(log, acks=1, linger_ms=0) as producer:
        while time.monotonic() - began < seconds:
            producer.send(TOPIC, str(time.monotonic()).encode(), partition=figures["records"] % PARTITIONS)
            figures["records"] += 1
            time.sleep(SEND_EVERY_S)
            problems += [f"{process.name} ended" for process, _ in members if not process.is_alive()]
            if problems:
                return Outcome(dict(figures), problems)
    figures["seconds"] = round(time.monotonic() - began)
    until = time.monotonic() + PATIENCE_S
    while any(log.lag(GROUP).values()) and time.monotonic() < until:
        time.sleep(0.1)
    now = log.describe_group(GROUP)
    if now.generation != generation or len(now.members) != MEMBERS:
        problems.append(
            f"generation {generation} became {now.generation}, with {len(now.members)} of {MEMBERS} members"
        )
    longest_ms = 0.0
    for process, pipe in members:
        pipe.send("stop")
        if not pipe.poll(PATIENCE_S):
            problems.append(f"{process.name} does not stop")
            continue
        read, late_ms, told = pipe.recv()
        figures["read"] += read
        longest_ms = max(longest_ms, late_ms)
        problems += [f"{process.name}: {what}" for what in told]
    if figures["read"] != figures["records"]:
        problems.append(f"{figures['records']} records were sent and {figures['read']} read")
    figures["milliseconds of the latest record (of each turn, added)"] = round(longest_ms)
    return Outcome(dict(figures), problems)


def _generation_of_all(log: Log) -> int:
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        with suppress(GroupNotFound):
            group = log.describe_group(GROUP)
            if len(group.members) == MEMBERS and group.state == "Stable":
                return group.generation
        time.sleep(0.1)
    raise TimeoutError(f"the group has not settled with {MEMBERS} members after {PATIENCE_S:.0f} s")


def _be_busy() -> None:
    while True:
        pass


def _be_member(directory: Path, max_poll_interval_ms: int, pipe: Connection) -> None:
    """Polls and commits until told to stop; tells how much it read, how late at worst, and what it
    lost before that."""
    told: list[str] = []
    read, late_ms = 0, 0.0
    with (
        Log(directory, create=False) as log,
        Consumer(
            log, group_id=GROUP, auto_offset_reset="earliest", max_poll_interval_ms=max_poll_interval_ms
        ) as consumer,
    ):
        consumer.subscribe(TOPIC, on_lost=partial(_lost, told))
        while not pipe.poll():
            for record in consumer.poll(0.2):
                read += 1
                late_ms = max(late_ms, (time.monotonic() - float(record.value or b"")) * 1e3)
            with suppress(CommitFailed):  # whoever lost its partitions tells
                consumer.commit()
        pipe.send((read, late_ms, told))
        time.sleep(PATIENCE_S)  # nobody leaves before all have told


def _lost(told: list[str], partitions: list[Any]) -> None:
    told.append(f"lost {len(partitions)} partitions")
