"""An exception of a signal handler, wherever one can come."""

from __future__ import annotations

import dis
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class Interrupt(BaseException):
    """Stands for KeyboardInterrupt or MemoryError."""


@contextmanager
def interrupt_at(
    step: int,
    rooms: re.Pattern[str],
    error: BaseException | type[BaseException] = Interrupt,
    *,
    handler: Callable[[], object] | None = None,
) -> Iterator[list[int]]:
    """Raise ``error``, or call ``handler``, at the ``step``-th place in these rooms where Python
    looks for signals.

    Those are the start of a function, the end of a call of C and the turn of a loop, not the return
    of a function: no function could make up for that. The list says how many places were passed.
    """
    passed = [0]
    last: dict[FrameType, str] = {}

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        if not rooms.search(frame.f_code.co_filename):
            return None
        frame.f_trace_opcodes = True
        if event == "return" and frame.f_back is not None:
            last[frame.f_back] = event
        if event == "exception":  # of a function of C, too: what handles it comes next, and no signal before
            last[frame] = event
        if event == "opcode":
            before = last.get(frame, "RESUME")
            last[frame] = dis.opname[frame.f_code.co_code[frame.f_lasti]]
            if before.startswith(("CALL", "JUMP_BACKWARD", "JUMP_ABSOLUTE", "RESUME")):
                passed[0] += 1
                if passed[0] == step:
                    if handler is None:
                        raise error
                    handler()
        return trace

    tracing = sys.gettrace()
    sys.settrace(trace)
    try:
        yield passed
    finally:
        sys.settrace(tracing)
        last.clear()  # which holds frames, and what they have open
