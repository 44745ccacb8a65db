"""docs/cli.md says what there is: every command and option, every exit code, and an example that
runs."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from pylog import Log, Producer
from pylog.cli import exits, main
from tests.cli.conftest import Run
from tests.findings import expect_none

TEXT = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from parsers(inner)


def test_every_command_and_option_is_documented() -> None:
    synopses = "\n".join(re.findall(r"```\n(pylog .*?)```", TEXT, re.DOTALL))
    for parser in parsers(main._parser()):
        assert parser.prog.rpartition(" ")[2] in synopses
        for action in parser._actions:
            for option in action.option_strings:
                if option not in ("-h", "--help", "--version", "--log", "--json"):
                    assert option in synopses, f"{parser.prog} {option}"


def test_every_exit_code_is_documented() -> None:
    rows = re.findall(r"^\| ([0-9, ]+) \|", TEXT, re.MULTILINE)
    documented = {int(code) for row in rows for code in row.split(",")}
    assert documented == {value for name, value in vars(exits).items() if name.isupper() and isinstance(value, int)}


@pytest.fixture
def used_log(pylog: Run, log: Log) -> None:
    """A log in which every command finds something to show."""
    log.create_topic("t")
    assert pylog("produce", "t", stdin=b"a\nb\n").code == 0
    assert pylog("consume", "t", "--from-beginning", "--group", "g").code == 0
    with Producer(log, transactional_id="x") as producer:
        producer.init_transactions()


def fields_of(answer: object) -> Iterator[str]:
    """The names in a JSON answer. Those in ``config`` are the topic's options, which docs/api.md
    has."""
    for item in answer if isinstance(answer, list) else ():
        yield from fields_of(item)
    for name, value in answer.items() if isinstance(answer, dict) else ():
        yield name
        yield from fields_of(value) if name != "config" else ()


@pytest.mark.usefixtures("used_log")
@pytest.mark.parametrize(
    "line",
    [
        "topics create u", "topics list", "topics describe t", "topics alter t --partitions 2", "topics delete t",
        "produce t --file /dev/null", "consume t --from-beginning", "stats", "verify",
        "groups list", "groups describe g", "groups reset g --to-earliest", "groups delete g",
        "transactions list", "transactions describe x",
    ],
)  # fmt: skip
def test_every_field_of_a_json_answer_is_documented(pylog: Run, line: str) -> None:
    command, *_ = line.split()
    section = TEXT.partition(f"## pylog {command}\n")[2].partition("\n## ")[0]
    ran = pylog(*line.split(), "--json")
    assert ran.objects, ran.err
    fields = {field for answer in ran.objects for field in fields_of(answer)}
    missing = sorted(fields - {*re.findall(r"\w+", section.partition("JSON:")[2])})
    expect_none(missing, f"Add these fields to docs/cli.md, section pylog {command}")


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
