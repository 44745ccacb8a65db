"""The exit codes, and the errors that lead to them. docs/cli.md has the same table for users."""

from __future__ import annotations

import errno

from pylog.errors import (
    ConfigError,
    CorruptRecord,
    DeliveryTimeout,
    FormatVersionError,
    GroupNotFound,
    InvalidPartition,
    InvalidTimestamp,
    InvalidTopicName,
    LogLocked,
    LogNotFound,
    NoOffsetForPartition,
    NotAppended,
    OffsetOutOfRange,
    OutcomeUnknown,
    PylogError,
    ReadOnlyLog,
    SerializationError,
    StorageError,
    TopicNotFound,
    UnsafeDirectory,
)

OK = 0
PROBLEM = 1
USAGE = 2
NOT_FOUND = 3
LOCKED = 4
CORRUPT = 5
STORAGE = 6
INTERNAL = 70  # EX_SOFTWARE of sysexits.h: a bug of pylog
INTERRUPTED = 130  # what a shell reports for a process ended by SIGINT; likewise below
BROKEN_PIPE = 141
TERMINATED = 143

_FORBIDDEN = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_CODES: tuple[tuple[type[BaseException] | tuple[type[BaseException], ...], int], ...] = (
    (
        (
            LogNotFound,
            TopicNotFound,
            InvalidPartition,
            OffsetOutOfRange,
            NoOffsetForPartition,
            GroupNotFound,
            FileNotFoundError,
        ),
        NOT_FOUND,
    ),
    ((LogLocked, ReadOnlyLog, UnsafeDirectory, DeliveryTimeout), LOCKED),
    ((CorruptRecord, FormatVersionError), CORRUPT),
    ((StorageError, OSError), STORAGE),
    ((ConfigError, InvalidTopicName, SerializationError, InvalidTimestamp), USAGE),
)


class UsageError(Exception):
    """The command line itself is wrong."""


class InputError(Exception):
    """A line of the input is not a record, or its record was refused: the error is ``__cause__``."""


class Terminated(KeyboardInterrupt):
    """SIGTERM: ends like Ctrl-C, with the records read so far flushed, but another exit code."""


def code_of(error: BaseException) -> int:
    """The exit code of a command that ended with this error."""
    if isinstance(error, UsageError):
        return USAGE
    if isinstance(error, InputError):
        return USAGE if error.__cause__ is None else code_of(error.__cause__)
    if isinstance(error, OSError) and error.errno in _FORBIDDEN:
        return LOCKED
    if type(error) in (NotAppended, OutcomeUnknown) and isinstance(error.__cause__, PylogError):
        return code_of(error.__cause__)  # the cause has the reason
    return next((code for kinds, code in _CODES if isinstance(error, kinds)), PROBLEM)
