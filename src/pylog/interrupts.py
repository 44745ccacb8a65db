"""Tells a signal handler's exception from the errors of the system and of pylog.

Python runs a signal handler in the main thread, during its work. A handler may raise
``TimeoutError``, which is an ``OSError``, while pylog syncs a file, although the disk is fine. Such
an exception belongs to the caller: it passes unchanged, and leaves the work as a kill would. So an
``except`` of pylog for a type of Python's checks the origin:

    try:
        file.sync()
    except own(OSError) as error:

``own`` is called only after an exception, so it costs nothing without one.

A handler written in Python has its own frame in the traceback. It is recognized if its function is
installed for a signal at that moment, or if its frame is the innermost one, outside pylog and
libraries.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from functools import partial
from threading import Thread  # a handler can interrupt its start
from types import CodeType, MethodType, TracebackType
from typing import Generic, TypeVar
from weakref import ref

from pylog.errors import PylogError

E = TypeVar("E", bound=BaseException)
T = TypeVar("T")

_LIBRARIES = ("cramjam", "crc32c", "lz4", "mmh3", "numpy", "pandas", "pyarrow", "zstandard")
_OURS = ("pylog.", "namedtuple_")  # and what collections.namedtuple makes
_CALLED = frozenset(("pylog", *_LIBRARIES, *sys.stdlib_module_names)) - {"__main__"}


def own(*kinds: type[E]) -> tuple[type[E], ...]:
    """For ``except own(OSError):``. The kinds, or () if a signal handler raised the exception."""
    error = sys.exc_info()[1]
    if not isinstance(error, kinds):
        return kinds
    trace = error.__traceback__
    return kinds if trace is None or trace.tb_next is None or not is_foreign(error) else ()


def is_foreign(error: BaseException) -> bool:
    """Whether a signal handler raised the exception, which the calling function has just caught.

    A ``PylogError`` from a handler is recognized only by the installed function, since the handler
    may call pylog. So is a ``MemoryError``, which Python raises in any frame.
    """
    trace = error.__traceback__
    if trace is None or trace.tb_next is None:  # usually raised in that very function
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
    For places that call functions of the application, whose frames prove nothing."""
    trace = error.__traceback__
    codes: set[CodeType] | None = None
    while trace is not None:
        name = _name_of_module(trace)
        if not name.startswith(_OURS) or ".cli" in name:
            codes = set(_installed()) if codes is None else codes
            if trace.tb_frame.f_code in codes:
                return True
        trace = trace.tb_next
    return False


def was_raised_meanwhile(error: BaseException, kind: type[BaseException]) -> bool:
    """Whether a signal handler raised ``error`` while an error of this kind was propagating."""
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
    """The topmost package of the frame's module."""
    name = _name_of_module(trace)
    return "pylog" if name.startswith(_OURS) else name.partition(".")[0]


def _name_of_module(trace: TracebackType) -> str:
    return str(trace.tb_frame.f_globals.get("__name__", ""))


def _installed() -> Iterator[CodeType]:
    """The code of every signal handler that is, or wraps, a Python function."""
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


def start_thread(thread: Thread) -> None:
    """``thread.start()``, but the exception of a signal handler passes: Python may raise a
    ``KeyError`` of its own instead, after the thread has begun."""
    try:
        thread.start()
    except own(KeyError) as error:
        raise error if error.__context__ is None else error.__context__  # noqa: B904 - it is the cause


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
    """``weakref.WeakSet`` with callbacks in C: Python drops an exception that a signal handler
    raises in a Python callback."""

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
