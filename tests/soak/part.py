"""A part of a soak: what it is, what it hands back, and how it is run in a process and a directory
of its own."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import shutil
import signal
import tempfile
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import NamedTuple

_LATE_FACTOR = 2.0  # what is begun in its time may take as long again on a busy machine
_LATE_S = 300.0
_TO_DUMP_S = 10.0
_TO_END_S = 20.0


class Outcome(NamedTuple):
    """Numbers by name, which add up over turns, and what was wrong."""

    figures: dict[str, float]
    problems: list[str]


Run = Callable[[float, int, Path], Outcome]
"""``run(seconds, seed, directory)``, a function of a module; the directory is empty."""


def run_apart(name: str, run: Run, seconds: float, seed: int, directory: str | None) -> tuple[Outcome, Path]:
    """Run a part in a new process, and in a new directory below ``directory``, which stays if there
    are problems.

    A part that is not done long after its time is killed, with a report of where it stood on its
    standard error.
    """
    place = Path(tempfile.mkdtemp(prefix=f"pylog-{name}-", dir=directory))
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_run_here, args=(run, seconds, seed, place, sender))
    process.start()
    sender.close()
    limit_s = _LATE_FACTOR * seconds + _LATE_S
    try:
        if receiver.poll(limit_s):
            outcome = receiver.recv()
        else:
            _end(process)
            outcome = Outcome({}, [f"{name}, with {seconds:.0f} s to run, hung: killed after {limit_s:.0f} s"])
    except EOFError:
        process.join()
        outcome = Outcome({}, [f"{name} ended with status {process.exitcode} and reported nothing"])
    process.join()
    if not outcome.problems:
        shutil.rmtree(place)
    return outcome, place


def _end(process: BaseProcess) -> None:
    """As Ctrl-C would, so that it ends what it has started; or, if that doesn't help, at once."""
    if process.pid is not None:
        os.kill(process.pid, signal.SIGINT)
    process.join(_TO_END_S)
    process.kill()


def _run_here(run: Run, seconds: float, seed: int, place: Path, sender: Connection) -> None:
    faulthandler.dump_traceback_later(_LATE_FACTOR * seconds + _LATE_S - _TO_DUMP_S)
    try:
        outcome = run(seconds, seed, place)
    except Exception:  # noqa: BLE001 - whatever it was, the soak goes on with its other parts
        outcome = Outcome({}, [traceback.format_exc()])
    sender.send(outcome)
