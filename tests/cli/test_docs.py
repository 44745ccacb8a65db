"""docs/cli.md says what there is: every command and option, every exit code, every field of JSON,
and an example that runs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pylog import Log, Producer
from pylog.cli import exits, main
from pylog.cli.main import commands_of
from pylog.storage import OsFileSystem
from tests.cli.conftest import Ran, Run
from tests.findings import expect_none

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "cli.md").read_text()
API = (DOCS / "api.md").read_text()
KAFKA = Path(__file__).parents[1] / "data" / "kafka-4.3.1" / "log"
COMMANDS = {parser.prog.removeprefix("pylog "): parser for parser in commands_of(main._parser())}
OF_ALL_COMMANDS = {"-h", "--help", "--log", "--json"}
LINES = {
    "topics create": "topics create u",
    "topics list": "topics list",
    "topics describe": "topics describe t",
    "topics alter": "topics alter t --partitions 2",
    "topics rename": "topics rename t u",
    "topics repartition": "topics repartition t 2",
    "topics delete": "topics delete t",
    "produce": "produce t --file /dev/null",
    "consume": "consume t --from-beginning",
    "records delete": "records delete t --before-offset 1",
    "erase": "erase t --key k",
    "groups list": "groups list",
    "groups describe": "groups describe g",
    "groups reset": "groups reset g --to-earliest",
    "groups delete": "groups delete g",
    "transactions list": "transactions list",
    "transactions describe": "transactions describe x",
    "transactions abort": "transactions abort x",
    "maintain": "maintain --dry-run",
    "doctor": "doctor",
    "alter": "alter",
    "backup": "backup {}/backup",
    "dump": f"dump {{}}/log/t-0 {KAFKA} --records",
    "verify": "verify",
    "stats": "stats",
}
"""A line for each command, about the log of ``used_log``. It only reads if the command can."""
WRITING_LINES = [
    "consume t --group g --from-beginning",
    "groups reset g --to-earliest --execute",
    "maintain",
    "alter --max-bytes 100000000",
]
"""Of commands that write only with, or only without, an option."""


def undocumented(text: str) -> list[str]:
    """Commands and options without a synopsis, and those of a synopsis that are not there."""
    lines = re.sub(r"\n +", " ", "".join(re.findall(r"```\n(pylog .*?)```", text, re.DOTALL))).splitlines()
    problems = [line for line in lines if not any(f"{line} ".startswith(f"pylog {name} ") for name in COMMANDS)]
    for name, parser in COMMANDS.items():
        synopses = [line for line in lines if f"{line} ".startswith(f"pylog {name} ")]
        if not synopses:
            problems.append(name)
            continue
        shown = set(re.findall(r"(?<![\w-])--?[a-z][a-z0-9-]*", " ".join(synopses)))
        taken = {option for action in parser._actions for option in action.option_strings}
        problems += [f"{name} {option}" for option in sorted((shown ^ taken) - OF_ALL_COMMANDS)]
    return problems


def test_every_command_and_option_is_documented() -> None:
    expect_none(undocumented(TEXT), "Change the synopses in docs/cli.md")
    assert undocumented(TEXT.replace("pylog topics list [", "pylog topics lists [")) == [
        "pylog topics lists [--exclude-internal]",
        "topics list",
    ]
    assert undocumented(TEXT.replace("pylog topics delete TOPIC [--if-exists]", "pylog topics delete TOPIC")) == [
        "topics delete --if-exists"  # another command has it as well
    ]
    assert undocumented(TEXT.replace("pylog doctor\n", "pylog doctor [--quick]\n")) == ["doctor --quick"]


def test_every_exit_code_is_documented() -> None:
    rows = re.findall(r"^\| ([0-9, ]+) \|", TEXT, re.MULTILINE)
    documented = {int(code) for row in rows for code in row.split(",")}
    assert documented == {value for name, value in vars(exits).items() if name.isupper() and isinstance(value, int)}


@pytest.fixture
def used_log(pylog: Run, log: Log) -> Iterator[None]:
    """A log in which every command finds something to show."""
    log.create_topic("t")
    log.create_topic("short", retention_ms=1000)
    log.create_topic("in-transaction")
    assert pylog("produce", "t", "--key-separator", ":", stdin=b"k:a\nl:b\n").code == 0
    assert pylog("consume", "t", "--from-beginning", "--group", "g").code == 0
    log.partition("t", 0).log.roll()
    with Producer(log, transactional_id="x") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("in-transaction", b"open").result()
        yield


def run_line(pylog: Run, command: str, directory: Path) -> Ran:
    return pylog(*LINES[command].format(directory).split(), "--json")


def test_every_command_has_a_line() -> None:
    assert LINES.keys() == COMMANDS.keys()


@pytest.mark.usefixtures("used_log")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_that_only_reads_and_no_other_works_without_permission_to_write(
    pylog: Run, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OsFileSystem, "writable", lambda *_: False)
    only_reads = COMMANDS[command].get_default("only_reads")
    assert only_reads is not None, f"pylog {command} does not say whether it only reads"
    ran = run_line(pylog, command, tmp_path)
    assert ran.code == (exits.OK if only_reads else exits.LOCKED), ran.err


def fields_of(answer: object) -> Iterator[str]:
    """The names in a JSON answer. Those in ``config`` are the topic's options, which docs/api.md
    has."""
    for item in answer if isinstance(answer, list) else ():
        yield from fields_of(item)
    for name, value in answer.items() if isinstance(answer, dict) else ():
        yield name
        yield from fields_of(value) if name != "config" else ()


VALUES = {
    name: {*re.findall(r"`(\w+)[`=]", fields)}
    for name, fields in re.findall(r"^\| `(\w+)` \| (.*) \|$", API.partition("\n## Values\n")[2], re.MULTILINE)
}
"""The fields of each value in docs/api.md. A value may be one of the words."""


def documented_fields(words: set[str]) -> set[str]:
    """These words, and the fields of the values among them."""
    more = words.union(*(VALUES[word] for word in words & VALUES.keys()))
    return words if more == words else documented_fields(more)


def undocumented_fields(text: str, command: str, answers: list[object]) -> list[str]:
    name = command.partition(" ")[0]
    (section,) = re.findall(rf"^## pylog (?:\w+, )*{name}\b.*?(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    fields = {field.removesuffix("_base64") for answer in answers for field in fields_of(answer)}
    return sorted(fields - documented_fields({*re.findall(r"\w+", section.partition("JSON:")[2])}))


@pytest.mark.usefixtures("used_log")
@pytest.mark.parametrize(
    ("line", "only_reads"),
    [(line, bool(COMMANDS[command].get_default("only_reads"))) for command, line in LINES.items()]
    + [(line, False) for line in WRITING_LINES],
)
def test_a_command_opens_the_log_as_it_uses_it(
    pylog: Run, line: str, only_reads: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: set[bool] = set()

    def open_log(path: str, **options: Any) -> Log:
        opened.add(options["read_only"])
        return Log(path, **options)

    monkeypatch.setattr("pylog.log.Log", open_log)
    ran = pylog(*line.format(tmp_path).split(), "--json")
    assert ran.code == exits.OK, ran.err
    assert opened == (set() if line.startswith("dump ") else {only_reads})


@pytest.mark.usefixtures("used_log")
@pytest.mark.parametrize("command", COMMANDS)
def test_every_field_of_a_json_answer_is_documented(pylog: Run, command: str, tmp_path: Path) -> None:
    ran = run_line(pylog, command, tmp_path)
    assert ran.code == exits.OK, ran.err
    assert ran.objects
    missing = undocumented_fields(TEXT, command, ran.objects)
    expect_none(missing, f"Add these fields to docs/cli.md, to what it says of pylog {command}")
    assert undocumented_fields(TEXT, command, [{"new": 0}]) == ["new"]


def test_a_value_of_the_api_page_documents_its_fields_and_those_of_values_in_it() -> None:
    assert {"segments", "oldest", "timestamp_ms"} <= documented_fields({"PartitionDescription"})
    assert "segments" not in documented_fields({"OffsetAndTimestamp"})


def test_the_example_runs_as_it_is_printed(pylog: Run) -> None:
    (transcript,) = re.findall(r"```console\n(.*?)```", TEXT, re.DOTALL)
    commands = re.split(r"^\$ ", transcript, flags=re.MULTILINE)[1:]
    for command in commands[1:]:
        line, _, wanted = command.partition("\n")
        stdin = b""
        if " | " in line:
            given, line = line.split(" | ")
            stdin = shlex.split(given)[1].replace("\\n", "\n").encode()
        ran = pylog(*shlex.split(line)[1:], stdin=stdin)
        assert (ran.code, ran.out, ran.err) == (0, wanted, ""), line
