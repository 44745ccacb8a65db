"""A part of a soak: what it is, what it hands back, and how it is run in a process and a directory of its own."""

from __future__ import annotations

import multiprocessing
import shutil
import tempfile
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple


class Outcome(NamedTuple):
    """Numbers by name, which add up over turns, and what was wrong."""

    figures: dict[str, float]
    problems: list[str]


Run = Callable[[float, int, Path], Outcome]
"""``run(seconds, seed, directory)``, a function of a module; the directory is empty."""


def run_apart(name: str, run: Run, seconds: float, seed: int, directory: str | None) -> tuple[Outcome, Path]:
    """Run a part in a new process, and in a new directory below ``directory``, which stays if there are problems."""
    place = Path(tempfile.mkdtemp(prefix=f"pylog-{name}-", dir=directory))
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_run_here, args=(run, seconds, seed, place, sender))
    process.start()
    sender.close()
    try:
        outcome = receiver.recv()
    except EOFError:
        process.join()
        outcome = Outcome({}, [f"{name} ended with status {process.exitcode} and reported nothing"])
    process.join()
    if not outcome.problems:
        shutil.rmtree(place)
    return outcome, place


def _run_here(run: Run, seconds: float, seed: int, place: Path, sender: Connection) -> None:
    try:
        outcome = run(seconds, seed, place)
    except Exception:  # noqa: BLE001 - whatever it was, the soak goes on with its other parts
        outcome = Outcome({}, [traceback.format_exc()])
    sender.send(outcome)
