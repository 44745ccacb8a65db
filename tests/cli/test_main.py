"""Exit codes, one line for every error, and quiet ends."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pylog import __version__, errors
from pylog.cli import consume, exits, topics
from pylog.cli.exits import InputError, UsageError, code_of
from pylog.cli.kafka_options import HINTS
from pylog.cli.main import _parser, commands_of, main
from pylog.log import Log
from pylog.model import ProducerRecord
from tests.cli.conftest import SOURCE, Run, environment, start


def with_cause(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("x"), 2),
        (errors.ConfigError("x"), 2),
        (errors.InvalidTopicName("x"), 2),
        (errors.SerializationError("x"), 2),
        (errors.InvalidTimestamp("x"), 2),
        (errors.LogNotFound("x"), 3),
        (errors.TopicNotFound("x"), 3),
        (errors.GroupNotFound("x"), 3),
        (errors.InvalidPartition("x"), 3),
        (errors.OffsetOutOfRange("x"), 3),
        (FileNotFoundError("x"), 3),
        (errors.LogLocked("x"), 4),
        (errors.ReadOnlyLog("x"), 4),
        (errors.DeliveryTimeout("x"), 4),
        (errors.StorageError("x", errno=errno.EACCES), 4),
        (errors.StorageError("x", errno=errno.EROFS), 4),
        (PermissionError(errno.EACCES, "x"), 4),
        (errors.CorruptRecord("x"), 5),
        (errors.CorruptSegment("x"), 5),
        (errors.FormatVersionError("x"), 5),
        (errors.StorageFull("x", errno=errno.ENOSPC), 6),
        (errors.StorageError("x", errno=errno.EIO), 6),
        (OSError(errno.EIO, "x"), 6),
        (errors.TopicExists("x"), 1),
        (errors.GroupNotEmpty("x"), 1),
        (errors.CommitFailed("x"), 1),
        (errors.RecordTooLarge("x"), 1),
        (errors.OutcomeUnknown("x"), 1),
        (errors.MissingCodec("x"), 1),
        (errors.NotAppended("x"), 1),
        (with_cause(errors.NotAppended("x"), errors.CorruptSegment("y")), 5),
        (with_cause(errors.OutcomeUnknown("x"), errors.StorageFull("y", errno=errno.ENOSPC)), 6),
        (with_cause(InputError("x"), errors.StorageFull("y", errno=errno.ENOSPC)), 6),
        (InputError("x"), 2),
    ],
)
def test_an_error_has_its_exit_code(error: Exception, code: int) -> None:
    assert code_of(error) == code


def test_every_error_of_the_library_has_an_exit_code() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.PylogError)]
    assert {code_of(kind("x")) for kind in kinds} == {1, 2, 3, 4, 5, 6}


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["bogus"],
        ["topics"],
        ["consume"],
        ["--frobnicate"],
        ["topics", "create", "t", "--partitions", "0"],
        ["topics", "create", "t", "--partitions", "many"],
        ["topics", "list", "--lo", "x"],  # no abbreviations
        ["consume", "t", "--from-beginning", "--offset", "1"],
        ["consume", "t", "--offset", "1"],
        ["consume", "t", "--format", "%x"],
        ["consume", "t", "--json", "--raw"],
        ["consume", "t", "--isolation-level", "best"],
        ["produce", "t", "--acks", "2"],
        ["produce", "t", "--key-separator", ""],
        ["produce", "t", "--input-format", "json", "--key-separator", ","],
        ["produce", "t", "--header", "x"],
        ["dump", "/dev/null"],
        ["topics", "alter", "t"],
        ["groups"],
        ["groups", "describe"],
        ["groups", "reset", "g"],
    ],
)
def test_wrong_usage_is_one_line_and_code_2(pylog: Run, log: Log, argv: list[str]) -> None:
    log.create_topic("t")
    code, out, err = pylog(*argv)
    assert (code, out) == (2, "")
    assert err.startswith("pylog: error: ")
    assert err.count("\n") == 1


def test_without_a_log_named_every_command_asks_for_one(pylog: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYLOG_LOG")
    for argv in (
        ["topics", "list"],
        ["consume", "t"],
        ["produce", "t"],
        ["verify"],
        ["stats"],
        ["groups", "list"],
        ["groups", "delete", "g"],
        ["topics", "create", "t"],
    ):
        code, out, err = pylog(*argv)
        assert (code, out) == (2, "")
        assert err == "pylog: error: which log? Name its directory with --log DIR or in $PYLOG_LOG\n"


@pytest.mark.parametrize("argv", [["--log", "{}", "topics", "list"], ["topics", "list", "--log", "{}"]])
def test_the_log_is_named_before_or_after_the_command(pylog: Run, tmp_path: Path, argv: list[str]) -> None:
    with Log(tmp_path / "other") as other:
        other.create_topic("there")
    assert pylog(*(argument.format(tmp_path / "other") for argument in argv)).out == "there\n"
    assert pylog("--json", *(argument.format(tmp_path / "other") for argument in argv)).objects == [{"topic": "there"}]


def test_advice_is_for_the_command_line(pylog: Run, log_dir: Path, tmp_path: Path) -> None:
    err = pylog("topics", "list").err
    assert err.endswith(f"no log at {str(log_dir)!r}; correct the path, or make one there with pylog topics create\n")
    public = tmp_path / "public"
    public.mkdir()
    public.chmod(0o777)
    err = pylog("--log", public, "topics", "create", "t").err
    (only_reading,) = re.findall(r"or use commands that only read \((.*)\)$", err)
    assert {"topics list", "consume without --group", "dump", "doctor"} <= set(only_reading.split(", "))
    assert not {"topics create", "produce", "consume", "backup"} & set(only_reading.split(", "))
    assert "=True" not in err


def test_a_log_that_is_not_there_is_not_made(pylog: Run, log_dir: Path) -> None:
    for argv in (
        ["topics", "list"],
        ["consume", "t"],
        ["produce", "t"],
        ["verify"],
        ["stats"],
        ["groups", "list"],
        ["groups", "reset", "g", "--to-latest", "--execute"],
        ["consume", "t", "--group", "g"],
        ["topics", "delete", "t"],
    ):
        code, out, err = pylog(*argv)
        assert (code, out, err.count("\n")) == (3, "", 1)
    assert not log_dir.exists()


def test_a_log_of_a_newer_format_is_code_5(pylog: Run, log: Log, log_dir: Path) -> None:
    manifest = log_dir / ".pylog" / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "format": 99}))
    code, _, err = pylog("topics", "list")
    assert (code, err.count("\n")) == (5, 1)
    assert "upgrade" in err


def test_a_log_that_may_not_be_written_is_code_4(pylog: Run, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    from pylog.storage import OsFileSystem

    monkeypatch.setattr(OsFileSystem, "writable", lambda self, path: False)
    code, _, err = pylog("topics", "create", "t")
    assert (code, err.count("\n")) == (4, 1)


def test_help_and_version_are_code_0_and_load_nothing_heavy(log_dir: Path) -> None:
    program = (
        "import sys; from pylog.cli.main import main; code = main(['--help']); code += main(['--version']); "
        "code += main(['topics', 'create', '--help']); "
        "print(sorted({'rich', 'pyarrow', 'asyncio', 'numpy', 'logging.config', 'zstandard'} & set(sys.modules)), code)"
    )
    shown = subprocess.run(
        [sys.executable, "-c", program], env=environment(log_dir), capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert shown[-1] == "[] 0"
    assert f"pylog {__version__}" in shown
    assert any("exit codes" in line for line in shown)


def test_a_fault_of_our_own_is_one_line_unless_asked_for(pylog: Run, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> int:
        raise RuntimeError("\x1b[31mboom\nboom")

    monkeypatch.setattr(topics, "_list", fail)
    code, out, err = pylog("topics", "list")
    assert (code, out) == (exits.INTERNAL, "")
    assert err == (
        "pylog: error: internal error, please report it: RuntimeError: \\x1b[31mboom\\nboom (PYLOG_DEBUG=1 shows where)\n"
    )
    monkeypatch.setenv("PYLOG_DEBUG", "1")
    with pytest.raises(RuntimeError, match="boom"):
        pylog("topics", "list")


def test_what_the_library_logs_is_one_safe_line(pylog: Run, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    import logging

    def warn(*_: object) -> int:
        logging.getLogger("pylog.partition").warning("%s is \x1b odd\n", "x")
        logging.getLogger("pylog.partition").info("nobody asked")
        return 0

    monkeypatch.setattr(topics, "_list", warn)
    assert pylog("topics", "list") == (0, "", "pylog: warning: x is \\x1b odd\\n\n")
    logging.getLogger("pylog.partition").warning("afterwards")
    assert "pylog: " not in pylog("--version").err


def test_ctrl_c_is_code_130_without_a_word(pylog: Run, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(topics, "_list", interrupted)
    assert pylog("topics", "list") == (130, "", "")


def test_sigterm_is_code_143_and_its_handler_goes_back(pylog: Run, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.getsignal(signal.SIGTERM)

    def terminated(*_: object) -> int:
        signal.raise_signal(signal.SIGTERM)
        return 0

    monkeypatch.setattr(topics, "_list", terminated)
    assert pylog("topics", "list") == (143, "", "")
    assert signal.getsignal(signal.SIGTERM) is before


def test_it_runs_beside_other_threads(pylog: Run, log: Log) -> None:
    import threading

    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(main(["--version"])))
    thread.start()
    thread.join()
    assert codes == [0]


def test_a_full_disk_under_the_output_is_code_6(log: Log, log_dir: Path) -> None:
    log.create_topic("t")
    with open("/dev/full", "wb") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "pylog", "topics", "describe"],
            stdout=full,
            stderr=subprocess.PIPE,
            env=environment(log_dir),
        )
    assert (ended.returncode, ended.stderr) == (6, b"pylog: error: cannot write the output: No space left on device\n")


@pytest.mark.processes
@pytest.mark.parametrize("argv", [["consume", "t", "--from-beginning"], ["dump", "--records", "{}"], ["--help"]])
def test_a_reader_that_leaves_ends_it_quietly(log: Log, log_dir: Path, argv: list[str]) -> None:
    log.create_topic("t")
    log.partition("t", 0).append([ProducerRecord(b"x" * 1000)] * 1000, acks=1)
    reading, writing = os.pipe()
    os.close(reading)
    process = start(log_dir, *(argument.format(log_dir) for argument in argv), stdout=writing)
    os.close(writing)
    assert process.communicate()[1] == b""
    assert process.returncode == 141


@pytest.mark.processes
def test_with_stdout_closed_it_still_works(log_dir: Path) -> None:
    program = f"exec {sys.executable} -m pylog topics create t >&-"
    ended = subprocess.run(["/bin/sh", "-c", program], env=environment(log_dir), capture_output=True)
    assert (ended.returncode, ended.stderr) == (0, b"")
    with Log(log_dir) as log:
        assert log.topics() == ["t"]


def test_a_stream_that_is_no_terminal_file_is_left_alone(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    assert main(["topics", "list", "--log", str(log.path)]) == 0
    assert out.getvalue() == ""


def test_the_program_is_found_where_it_says() -> None:
    assert Path(consume.__file__).is_relative_to(SOURCE)


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        ("consume --topic t", "Kafka's --topic: name the topic without an option"),
        ("produce --topic=t", "Kafka's --topic: "),
        ("topics list --bootstrap-server localhost:9092", "Kafka's --bootstrap-server: there is no server: "),
        ("topics create t --replication-factor 1", "Kafka's --replication-factor: there are no replicas"),
        ("consume t --max-messages 5", "Kafka's --max-messages: here it is --max-records"),
        ("consume t --property print.key=true", "Kafka's --property: "),
        ("topics --create --topic t", "Kafka's --create: the command is a word"),
        ("groups --describe --group g", "Kafka's --describe: the command is a word"),
        ("groups reset g --to-datetime 2026-01-01T00:00:00", "Kafka's --to-datetime: here it is --to-time"),
        ("groups describe --all-groups", "Kafka's --all-groups: name one group"),
        ("topics alter t --add-config retention.ms=5", "Kafka's --add-config: here it is --config"),
        ("dump --files t-0", "Kafka's --files: name the files without an option"),
    ],
)
def test_options_of_kafkas_tools_are_answered_with_those_here(pylog: Run, command: str, hint: str) -> None:
    ran = pylog(*command.split())
    assert ran.code == 2
    assert hint in ran.err
    assert ran.err.count("\n") == 1


def test_an_option_that_the_command_has_gets_no_hint(pylog: Run) -> None:
    for command in (("groups", "reset"), ("transactions", "abort")):
        ran = pylog(*command, "--topic", "t")
        assert (ran.code, "Kafka's" in ran.err) == (2, False)


def test_every_option_with_a_hint_is_none_of_the_commands_it_is_for() -> None:
    parsers = [_parser(), *commands_of(_parser())]
    taken = {option for parser in parsers for action in parser._actions for option in action.option_strings}
    assert {*HINTS} & taken == {"--topic"}, "of pylog groups reset and transactions abort"


def test_a_refused_option_of_a_topic_speaks_of_commands(pylog: Run) -> None:
    assert "said with --partitions N\n" in pylog("topics", "create", "t", "--config", "num.partitions=3").err
