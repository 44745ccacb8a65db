"""Chooses the command, and turns every error into one line and an exit code.

Nothing here touches a log. A command is a module with ``add_parser(commands)``. It sets two
defaults of its parser: ``run``, a function that takes the parsed arguments and returns an exit
code, and ``only_reads``: whether it never writes, or a text that says with which options it does
not.
"""

from __future__ import annotations

import argparse
import io
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NoReturn

from pylog import __version__
from pylog.cli import (
    backup,
    consume,
    dump,
    erase,
    exits,
    groups,
    maintain,
    produce,
    records,
    stats,
    topics,
    transactions,
    verify,
)
from pylog.cli.exits import InputError, Terminated, UsageError, code_of
from pylog.cli.kafka_options import hints
from pylog.cli.output import complain
from pylog.errors import PylogError

DEBUG_VARIABLE = "PYLOG_DEBUG"

_EPILOG = """
The log is named by --log DIR, before or after the command, or by the environment variable PYLOG_LOG.

exit codes:
  0 done   1 a problem, or the request was refused   2 wrong usage   3 log, topic, partition, group, offset or file not found
  4 locked or not writable   5 corrupt   6 storage full or failing   70 a fault of pylog's own
  130 interrupted   141 output closed   143 terminated
"""


class Parser(argparse.ArgumentParser):
    """Reports errors in one line. Takes no abbreviations: a new option would change their
    meaning."""

    def __init__(self, **options: object) -> None:
        super().__init__(**{"allow_abbrev": False, "epilog": "exit codes: pylog --help", **options})  # type: ignore[arg-type]

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see {self.prog} --help)")

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print help and version. argparse's own method ignores a closed or full output."""
        (file or sys.stdout).write(message)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code. Raises only bugs, under ``PYLOG_DEBUG=1``."""
    if sys.stdout is None:  # closed by the parent process
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - until the process ends
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        with _termination_interrupts():
            code = _run(sys.argv[1:] if argv is None else argv)
            sys.stdout.flush()
            return code
    except BrokenPipeError:
        _forget_output()
        return exits.BROKEN_PIPE
    except Terminated:
        return exits.TERMINATED
    except KeyboardInterrupt:
        return exits.INTERRUPTED
    except OSError as error:
        _forget_output()
        with suppress(OSError):
            complain("error", f"cannot write the output: {error.strerror or error}")
        return exits.STORAGE


def _run(argv: Sequence[str]) -> int:
    try:
        arguments = _parse(argv)
        with _library_warnings():
            return int(arguments.run(arguments))
    except SystemExit as end:  # argparse, after --help and --version
        return int(end.code or 0)
    except (PylogError, UsageError, InputError) as error:
        complain("error", _one_line(error))
        return code_of(error)
    except BrokenPipeError:
        raise
    except OSError as error:
        if error.filename is None:
            raise
        complain("error", f"{os.fsdecode(error.filename)}: {error.strerror}")
        return code_of(error)
    except Exception as error:  # the last resort: users get one line, developers can ask for more
        if os.environ.get(DEBUG_VARIABLE):
            raise
        complain(
            "error",
            f"internal error, please report it: {type(error).__name__}: {error} ({DEBUG_VARIABLE}=1 shows where)",
        )
        return exits.INTERNAL


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    try:
        return _parser().parse_args(argv)
    except UsageError as error:
        raise UsageError(f"{error}{hints(argv, str(error))}") from None


def _one_line(error: Exception) -> str:
    text = str(error) or type(error).__name__
    commands = {
        "create it with create_topic": "create it with pylog topics create",
        "raise it with alter_topic": "raise it with pylog topics alter",
        "or make one there: pylog.Log(path) does, unless read_only": "or make one there with pylog topics create",
        "create_topic(name, partitions=n), later with add_partitions(name, total)": "--partitions N",
    }
    for library, command in commands.items():
        text = text.replace(library, command)
    for library in ("open the log with read_only=True", "open it with read_only=True"):
        if library in text:
            text = text.replace(library, f"use commands that only read ({', '.join(_only_reading())})")
    return text


def _only_reading() -> Iterator[str]:
    for command in commands_of(_parser()):
        only_reads = command.get_default("only_reads")
        if only_reads:
            name = command.prog.removeprefix("pylog ")
            yield name if only_reads is True else f"{name} {only_reads}"


def commands_of(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """The parsers of all commands: those without other commands below them."""
    below = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not below:
        yield parser
    for action in below:
        for command in action.choices.values():
            yield from commands_of(command)


def _parser() -> Parser:
    parser = Parser(
        prog="pylog",
        description="Kafka's log without a broker: topics in a directory, from the command line.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"pylog {__version__}")
    parser.add_argument("--log", metavar="DIR", default=None, help="the directory of the log (default: $PYLOG_LOG)")
    parser.add_argument("--json", action="store_true", default=False, help="one JSON object per line")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True, parser_class=Parser)
    for command in (
        topics, produce, consume, records, erase, groups, transactions, maintain, backup, dump, verify, stats,
    ):  # fmt: skip
        command.add_parser(commands)
    return parser


@contextmanager
def _termination_interrupts() -> Iterator[None]:
    """While a command runs, SIGTERM ends it like Ctrl-C: it first writes the records it has."""

    def terminate(_: int, __: FrameType | None) -> None:
        raise Terminated

    try:
        before = signal.signal(signal.SIGTERM, terminate)
    except ValueError:  # only the main thread may do this
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _library_warnings() -> Iterator[None]:
    """The library's log messages become safe lines ``pylog: warning: …`` on stderr."""
    import logging

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.name != "pylog.producer":  # the command itself reports the outcome of records
                complain(record.levelname.lower(), record.getMessage())

    logger = logging.getLogger("pylog")
    handler = Handler(logging.WARNING)
    propagates, logger.propagate = logger.propagate, False
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagates


def _forget_output() -> None:
    """The reader of stdout is gone: discard the interpreter's flush at exit."""
    with suppress(OSError, ValueError):
        target = os.open(os.devnull, os.O_WRONLY)
        os.dup2(target, sys.stdout.fileno())
        os.close(target)
