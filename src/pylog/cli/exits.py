"""The exit codes, and the errors that lead to them. docs/cli.md has the same table for users."""

from __future__ import annotations

import errno

from pylog import errors

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
_CODES: dict[int, tuple[type[Exception], ...]] = {  # the first that fits
    NOT_FOUND: (
        errors.LogNotFound, errors.TopicNotFound, errors.InvalidPartition, errors.OffsetOutOfRange,
        errors.NoOffsetForPartition, errors.GroupNotFound, errors.TransactionNotFound, FileNotFoundError,
    ),
    LOCKED: (errors.LogLocked, errors.ReadOnlyLog, errors.UnsafeDirectory, errors.DeliveryTimeout),
    CORRUPT: (errors.CorruptRecord, errors.FormatVersionError),
    STORAGE: (errors.StorageError, OSError),
    USAGE: (errors.ConfigError, errors.InvalidTopicName, errors.SerializationError, errors.InvalidTimestamp,
        errors.InvalidRecord),
}  # fmt: skip


class UsageError(Exception):
    """The command line itself is wrong."""


class InputError(Exception):
    """A line of the input is not a record, or its record was refused: the error is
    ``__cause__``."""


class Terminated(KeyboardInterrupt):
    """SIGTERM: ends like Ctrl-C, with the records read so far flushed, but another exit code."""


def code_of(error: BaseException) -> int:
    if isinstance(error, UsageError):
        return USAGE
    if isinstance(error, InputError):
        return USAGE if error.__cause__ is None else code_of(error.__cause__)
    if isinstance(error, OSError) and error.errno in _FORBIDDEN:
        return LOCKED
    if type(error) in (errors.NotAppended, errors.OutcomeUnknown) and isinstance(error.__cause__, errors.PylogError):
        return code_of(error.__cause__)  # the cause has the reason
    return next((code for code, kinds in _CODES.items() if isinstance(error, kinds)), PROBLEM)
