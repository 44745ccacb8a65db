"""Tells an exception that a signal handler raised from the answers of the system and of pylog itself.

Python runs a signal handler in the main thread, in the midst of whatever that thread does. A handler may raise
``TimeoutError``, which is an ``OSError``, while pylog syncs a file, and nothing is wrong with the disk. Such an exception
belongs to the caller: it passes unchanged, and the work is left as a kill would leave it. So an ``except`` of pylog that names
a type of Python's asks whose exception it is:

    try:
        file.sync()
    except own(OSError) as error:

``own`` is called only after something was raised: it costs nothing where nothing is.

A handler written in Python adds a frame of its own to the traceback. It is recognized there in two ways: its function is
installed for a signal at that moment; or its frame is the innermost one, and neither pylog's nor a library's.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from functools import partial
from types import CodeType, MethodType, TracebackType
from typing import Generic, TypeVar
from weakref import ref

from pylog.errors import PylogError

E = TypeVar("E", bound=BaseException)
T = TypeVar("T")

_LIBRARIES = ("cramjam", "crc32c", "lz4", "mmh3", "numpy", "pandas", "pyarrow", "zstandard")
_CALLED = frozenset(("pylog", *_LIBRARIES, *sys.stdlib_module_names)) - {"__main__"}


def own(*kinds: type[E]) -> tuple[type[E], ...]:
    """For ``except own(OSError):``. The kinds, or none where a signal handler raised what is being handled."""
    error = sys.exc_info()[1]
    return () if isinstance(error, kinds) and is_foreign(error) else kinds


def is_foreign(error: BaseException) -> bool:
    """Whether a signal handler raised the exception, which the calling function has just caught.

    A handler that calls pylog may let a ``PylogError`` out; that one is recognized only by the function that is installed.
    So is a ``MemoryError``, which Python raises in any frame.
    """
    trace = error.__traceback__
    if trace is None or trace.tb_next is None:  # it was raised right there, as a rule
        return False
    if is_of_handler(error):
        return True
    if isinstance(error, PylogError | MemoryError):
        return False
    while trace.tb_next is not None:
        trace = trace.tb_next
    return _module(trace) not in _CALLED


def is_of_handler(error: BaseException) -> bool:
    """Whether a function that is installed as a signal handler raised the exception.

    For places that call functions of the application, whose frames say nothing.
    """
    trace = error.__traceback__
    codes: set[CodeType] | None = None
    while trace is not None:
        if _module(trace) != "pylog" or ".cli" in str(trace.tb_frame.f_globals.get("__name__")):
            codes = set(_installed()) if codes is None else codes
            if trace.tb_frame.f_code in codes:
                return True
        trace = trace.tb_next
    return False


def was_raised_meanwhile(error: BaseException, kind: type[BaseException]) -> bool:
    """Whether a signal handler raised ``error`` while an answer of this kind was on its way to who would have handled it."""
    if not is_foreign(error):
        return False
    seen: set[int] = set()
    before = error.__context__
    while before is not None and id(before) not in seen:
        if isinstance(before, kind) and not is_foreign(before):
            return True
        seen.add(id(before))
        before = before.__context__
    return False


def _module(trace: TracebackType) -> str:
    """The topmost package of the module that a frame's function stands in."""
    name = str(trace.tb_frame.f_globals.get("__name__", "")).partition(".")[0]
    return "pylog" if name.startswith("namedtuple_") else name  # what collections.namedtuple makes


def _installed() -> Iterator[CodeType]:
    """The code of every signal handler that is a function of Python, or comes down to one."""
    for number in signal.valid_signals():
        handler: object = signal.getsignal(number)
        while callable(handler):
            code = getattr(handler, "__code__", None)
            if isinstance(code, CodeType):
                yield code
                break
            if isinstance(handler, partial):
                handler = handler.func
            else:
                handler = handler.__func__ if isinstance(handler, MethodType) else _call_of(handler)


def _call_of(handler: object) -> object:
    call = getattr(type(handler), "__call__", None)  # noqa: B004 - its code is wanted
    return call if isinstance(getattr(call, "__code__", None), CodeType) else None


class suppress:  # noqa: N801  (as contextlib's)
    """``contextlib.suppress``, but the exception of a signal handler passes."""

    __slots__ = ("_kinds",)

    def __init__(self, *kinds: type[BaseException]) -> None:
        self._kinds = kinds

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> bool:
        return isinstance(error, self._kinds) and not is_foreign(error)


class WeakSet(Generic[T]):
    """``weakref.WeakSet`` whose callbacks are C alone: Python drops what a signal handler raises in one that is not."""

    def __init__(self) -> None:
        self._references: dict[int, ref[T]] = {}  # by ``id``

    def add(self, item: T) -> None:
        key = id(item)
        self._references[key] = ref(item, partial(self._references.pop, key))

    def discard(self, item: T) -> None:
        self._references.pop(id(item), None)

    def __iter__(self) -> Iterator[T]:
        for reference in list(self._references.values()):
            item = reference()
            if item is not None:
                yield item
