"""docs/cli.md says what there is: every command and option, every exit code, and an example that runs."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from pylog.cli import exits, main
from tests.cli.conftest import Run

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
