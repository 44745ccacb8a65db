"""Questions to the system, and functions that replace the system's: pylog takes their exceptions
for the system's answers."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from types import FunctionType
from typing import Any


def of_the_system(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as if Python's library had it: else pylog takes what it raises for a signal
    handler's exception."""
    assert isinstance(function, FunctionType)
    names = {**function.__globals__, "__name__": "os"}
    moved = FunctionType(function.__code__, names, function.__name__, function.__defaults__, function.__closure__)
    moved.__kwdefaults__ = function.__kwdefaults__
    return moved


def names_of_open_files() -> list[str]:
    """The names of what this process has open, except sockets: Spark's gateway opens and closes
    those at any time."""
    names = []
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # the list's own, or closed since
            names.append(os.readlink(f"/proc/self/fd/{number}"))
    return sorted(name for name in names if not name.startswith("socket:"))


@of_the_system
def fail(error: BaseException) -> None:
    """Raise it, as a function of the system does."""
    raise error
