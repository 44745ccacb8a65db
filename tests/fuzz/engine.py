"""One target in this process: mutants run and judged until the time or the number is up.

What the target has not said before keeps its input in the pool, as far as its words without their
numbers tell. A hang ends the process, with what it hung at in the scratch file; so does a fault of
native code.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import random
import re
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzz import corpus, native
from tests.fuzz.scratch import Scratch
from tests.fuzz.target import Target, shape_of
from tests.fuzz.targets import TARGETS

NATIVE = "native"
NAMES = (NATIVE, *TARGETS)
BLOCK = 100
HANG_S = 60.0  # for a block
SLOW_S = 2.0  # for one input
GROWN_BYTES_MAX = 64 << 20 if "ASAN_OPTIONS" not in os.environ else 1 << 40  # the sanitizer holds on to what was freed
FINDINGS_MAX = 10
_POOL_GROWTH_MAX = 500


@dataclass
class Report:
    """What came of one target. Everything in it can be printed as JSON."""

    target: str
    seed: int
    executions: int = 0
    seconds: float = 0.0
    values: int = 0
    shapes: int = 0
    slowest_ms: float = 0.0
    grown_bytes: int = 0
    findings: list[dict[str, str]] = field(default_factory=list)

    @property
    def per_second(self) -> float:
        return self.executions / self.seconds if self.seconds else 0.0


@dataclass
class Order:
    """What to do: so many seconds or executions, whichever is reached first."""

    target: str
    seed: int
    seconds: float
    executions: int
    scratch: Path
    findings: Path
    keep: bool = False
    own_process: bool = True  # which may be ended where something hangs


def run(order: Order) -> Report:
    """Fuzz one target. Findings are written below ``order.findings``."""
    with quiet():
        return _run(order)


@contextmanager
def quiet() -> Iterator[None]:
    """Without the warnings that readers of damaged files log."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def guard(order: Order) -> None:
    """From now on so long for a block: what hangs ends the process, and its input stands in the
    scratch file."""
    if order.own_process:
        faulthandler.dump_traceback_later(HANG_S, exit=True)


def _run(order: Order) -> Report:
    report = Report(order.target, order.seed)
    chance = random.Random(zlib.crc32(order.target.encode(), order.seed))
    scratch = Scratch(order.scratch)
    started = time.perf_counter()
    if order.target == NATIVE:
        block: Callable[[], int] = _NativeBlocks(order, report, chance, scratch).run
    else:
        block = _Blocks(order, report, chance, scratch).run
    base_bytes = peak_bytes()
    while report.executions < order.executions and report.seconds < order.seconds:
        guard(order)
        report.executions += block()
        report.seconds = time.perf_counter() - started
        report.grown_bytes = peak_bytes() - base_bytes
        if len(report.findings) >= FINDINGS_MAX:
            break
        if report.grown_bytes > GROWN_BYTES_MAX:
            note(order, report, b"", f"memory grew by {report.grown_bytes >> 20} MiB")
            break
    faulthandler.cancel_dump_traceback_later()
    return report


def peak_bytes() -> int:
    """The most memory this process ever had; 0 where nobody tells."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return 0
    found = re.search(r"VmHWM:\s+(\d+)", status)
    return int(found[1]) << 10 if found else 0


class _NativeBlocks:
    def __init__(self, order: Order, report: Report, chance: random.Random, scratch: Scratch) -> None:
        self._order, self._report, self._chance, self._scratch = order, report, chance, scratch
        self._target, self._pool = TARGETS["records"], corpus.pool_of("records")

    def run(self) -> int:
        try:
            executions, values = native.burst(self._target, self._pool, self._chance, self._scratch)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
            note(self._order, self._report, self._scratch.content(), words(error))
            return native.BURST
        self._report.values += values
        return executions


class _Blocks:
    def __init__(self, order: Order, report: Report, chance: random.Random, scratch: Scratch) -> None:
        self._order, self._report, self._scratch = order, report, scratch
        self._target: Target = TARGETS[order.target]
        self._pool = corpus.pool_of(order.target)
        self._most = len(self._pool) + _POOL_GROWTH_MAX
        self._mutator = self._target.mutator(chance, self._pool)
        self._seen: Counter[str] = Counter()
        for data in self._pool[:]:
            self._one(data)

    def run(self) -> int:
        for _ in range(BLOCK):
            self._one(self._mutator.mutant())
        self._report.shapes = len(self._seen)
        return BLOCK

    def _one(self, data: bytes) -> None:
        report = self._report
        self._scratch.put(data)
        started = time.perf_counter()
        try:
            said = self._target.verdict(data)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
            self._find(data, words(error))
            return
        seconds = time.perf_counter() - started
        report.slowest_ms = max(report.slowest_ms, seconds * 1000)
        if seconds > SLOW_S:
            self._find(data, f"took {seconds:.1f} s")
        report.values += not _IS_ERROR.match(said)
        shape = shape_of(said)
        self._seen[shape] += 1
        if self._seen[shape] == 1 and len(self._pool) < self._most:
            self._pool.append(data)
            if self._order.keep and len(data) <= corpus.KEPT_BYTES_MAX:
                corpus.keep(self._order.target, data)

    def _find(self, data: bytes, problem: str) -> None:
        shape = f"finding {shape_of(problem)}"
        self._seen[shape] += 1
        if self._seen[shape] == 1:
            note(self._order, self._report, data, problem)


_IS_ERROR = re.compile(r"[A-Z]\w+: ")


def words(error: Exception) -> str:
    where = error.__traceback__
    while where is not None and where.tb_next is not None:
        where = where.tb_next
    place = f" ({Path(where.tb_frame.f_code.co_filename).name}:{where.tb_lineno})" if where else ""
    return f"{type(error).__name__}: {error}{place}"[:1000]


def note(order: Order, report: Report, data: bytes, problem: str) -> None:
    target = "records" if order.target == NATIVE else order.target
    path = corpus.write(order.findings, target, data)
    report.findings.append({"problem": problem, "input": str(path), "again": again(target, path)})


def again(target: str, path: Path) -> str:
    """The command that runs an input again."""
    return f"scripts/fuzz --target {target} --replay {path}"
