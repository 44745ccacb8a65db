"""Functions that stand in for the system's, whose exceptions pylog takes for the system's answers."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any


def of_the_system(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as if Python's library had it: else pylog takes what it raises for a signal handler's exception."""
    assert isinstance(function, FunctionType)
    names = {**function.__globals__, "__name__": "os"}
    moved = FunctionType(function.__code__, names, function.__name__, function.__defaults__, function.__closure__)
    moved.__kwdefaults__ = function.__kwdefaults__
    return moved


@of_the_system
def fail(error: BaseException) -> None:
    """Raise it, as a function of the system does."""
    raise error
