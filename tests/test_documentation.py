"""What README.md and docs/ print runs: Python, shell, the examples for pytest and Spark. Their links and files exist.

The blocks of a document run in order, in one directory of their own, each in a process of its own. ``console`` blocks, which
show answers, are compared by ``tests/cli/test_docs.py``.
"""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

import pylog
from pylog import errors
from tests.conftest import java_problem

PROJECT = Path(__file__).parents[1]
DOCUMENTS = [PROJECT / "README.md", PROJECT / "SECURITY.md", *sorted((PROJECT / "docs").glob("*.md"))]
STAND_INS = {"/path/of/a/kafka/log.dir": str(PROJECT / "tests" / "data" / "kafka-4.3.1" / "log")}
WITH_SPARK = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[2]").getOrCreate()
"""


class Block(NamedTuple):
    """One piece of code, and the line of the document where it begins."""

    line: int
    language: str
    code: str

    @property
    def needs_spark(self) -> bool:
        return "spark." in self.code


def blocks(document: Path) -> list[Block]:
    text = document.read_text()
    found = re.finditer(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [Block(text.count("\n", 0, match.start()) + 2, match[1], match[2]) for match in found]


RUNNABLE = [document for document in DOCUMENTS if any(block.language in ("python", "sh") for block in blocks(document))]


def run(block: Block, directory: Path, timeout_s: float = 100) -> str:
    """Run it, or fail; what it printed."""
    code = block.code
    for printed, real in STAND_INS.items():
        code = code.replace(printed, real)
    program = directory / f"line_{block.line}.py"
    if block.language == "sh":
        command = ["bash", "-euo", "pipefail", "-c", code]
    elif "def test_" in code:
        program = program.with_name(f"test_{program.name}")
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "pylog.testing.pytest_plugin",
            "-p",
            "no:cacheprovider",
            str(program),
        ]
    else:
        command = [sys.executable, *([] if block.needs_spark else ["-W", "error"]), str(program)]
    program.write_text(code)
    done = subprocess.run(
        command, cwd=directory, env=environment(directory), capture_output=True, text=True, timeout=timeout_s
    )
    assert done.returncode == 0, f"line {block.line}:\n{done.stdout}{done.stderr}"
    return done.stdout


def environment(directory: Path) -> dict[str, str]:
    """Finds this source, and a ``pylog`` command of it."""
    programs = directory / "bin"
    programs.mkdir(exist_ok=True)
    (programs / "pylog").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m pylog "$@"\n')
    (programs / "pylog").chmod(0o755)
    source = Path(pylog.__file__).parents[1]
    return {
        **os.environ,
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(source),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": "--conf spark.ui.enabled=false --conf spark.sql.shuffle.partitions=2 pyspark-shell",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


@pytest.mark.processes
@pytest.mark.parametrize("document", [pytest.param(document, id=document.name) for document in RUNNABLE])
def test_what_a_document_prints_runs_and_runs_again(document: Path, tmp_path: Path) -> None:
    for _ in range(2):
        for block in blocks(document):
            if block.language in ("python", "sh") and not block.needs_spark:
                run(block, tmp_path)


@pytest.mark.processes
def test_the_consumer_that_commits_goes_on_where_it_stopped(tmp_path: Path) -> None:
    found = [block for block in blocks(PROJECT / "README.md") if block.language == "python"]
    send, go_on = found[0], next(block for block in found if "consumer.commit()" in block.code)
    run(send, tmp_path)
    assert run(go_on, tmp_path) == "billing b'400 USD'\n"
    assert run(go_on, tmp_path) == ""
    for _ in range(2):
        run(send, tmp_path)
    assert run(go_on, tmp_path) == "billing b'400 USD'\n" * 2


@pytest.mark.engine
@pytest.mark.spark
@pytest.mark.timeout(600)  # all blocks, in a session of their own: a minute and a half on two idle cores
def test_what_is_printed_for_spark_runs(tmp_path: Path) -> None:
    if problem := java_problem():
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(problem)
    found = [block for document in RUNNABLE for block in blocks(document) if block.language == "python"]
    for block in found:
        if not block.needs_spark and ("var/events" in block.code or "var/sales" in block.code):
            run(block, tmp_path)
    together = [block.code for block in found if block.needs_spark]  # one session is enough
    assert len(together) >= 2
    shown = run(Block(0, "python", WITH_SPARK + "".join(together)), tmp_path, 500)
    assert "|  costco|     2|  650|" in shown


@pytest.mark.parametrize("document", [pytest.param(document, id=document.name) for document in DOCUMENTS])
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", document.read_text()):
        if "://" not in target and not target.startswith("#"):
            assert (document.parent / target.partition("#")[0]).exists(), target


def test_the_readme_links_every_page() -> None:
    text = (PROJECT / "README.md").read_text()
    pages = [*sorted((PROJECT / "docs").glob("*.md")), *PROJECT.glob("examples/*/README.md")]
    assert [page for page in pages if f"({page.relative_to(PROJECT)})" not in text] == []


def test_the_api_page_has_every_public_class_and_names_only_what_there_is() -> None:
    text = (PROJECT / "docs" / "api.md").read_text()
    classes = {name: getattr(pylog, name) for name in pylog.__all__ if isinstance(getattr(pylog, name), type)}
    for name, kind in classes.items():
        assert re.search(rf"^#+ .*\b{name}\b|^\| `{name}[`(]", text, re.MULTILINE), f"{name} is missing"
        section = re.search(rf"^## {name}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
        if section is not None:
            firsts = re.findall(r"^\| ([^|]+) \|", section[1], re.MULTILINE)
            named = [member for cell in firsts for member in re.findall(r"`(\w+)(?:\(|`)", cell)]
            there = {*dir(kind), *re.findall(r"self\.(\w+)", inspect.getsource(kind))}
            assert named
            assert [member for member in named if member not in there] == [], name


def options_of(kind: type) -> dict[str, object]:
    """The public options of a class by name, with their defaults."""
    parameters = inspect.signature(kind).parameters.values()
    return {option.name: option.default for option in parameters if option.kind is option.KEYWORD_ONLY}


OPTIONS = {
    "Log options": options_of(pylog.Log),
    "Producer options": options_of(pylog.Producer),
    "Consumer options": options_of(pylog.Consumer),
    "TopicConfig": pylog.TopicConfig().as_dict(),
}


def section_of(text: str, heading: str) -> str:
    found = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found is not None, f"there is no section {heading!r}"
    return found[1]


def shown(default: str | bool) -> str:
    return f"`{default}`" if isinstance(default, bool) else f'`"{default}"`'


def missing_options(text: str) -> list[str]:
    """Options without a row of their own, and rows whose default is another one."""
    problems = []
    for heading, options in OPTIONS.items():
        rows = re.findall(r"^\| ([^|]+) \| ([^|]*) \|", section_of(text, heading), re.MULTILINE)
        documented = {name: default for cell, default in rows for name in re.findall(r"`(\w+)`", cell)}
        for name, default in options.items():
            written = documented.get(name)
            if written is None:
                problems.append(f"{heading}: {name} is missing")
            elif isinstance(default, str | bool) and written != shown(default):
                problems.append(f"{heading}: {name} is {default!r}, not {written}")
    return problems


def test_the_api_page_has_every_option_with_its_default() -> None:
    text = (PROJECT / "docs" / "api.md").read_text()
    assert all(options for options in OPTIONS.values())
    assert missing_options(text) == []
    assert missing_options(text.replace('| `acks` | `"all"` |', "| `acks` | 1 |")) != []
    assert missing_options(text.replace("| `max_poll_records` |", "| `max_records` |")) != []


def test_the_api_page_has_every_error_and_marks_those_worth_a_retry() -> None:
    named = section_of((PROJECT / "docs" / "api.md").read_text(), "Errors")
    kinds = {kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.PylogError)}
    assert len(kinds) > 30
    for kind in kinds:
        assert f"`{kind.__name__}`" in named or kind is errors.PylogError, f"{kind.__name__} is missing"
        assert (f"`{kind.__name__}`*" in named) == kind.retriable, kind.__name__


def missing_files(text: str) -> list[str]:
    """Tests, sources and scripts that a page names and that are not there."""
    names = re.findall(r"`((?:tests|scripts|examples|src)/[\w./-]+)(?=[`\s])", text)
    names += [
        f"src/pylog/{name}" for name in re.findall(r"[`( ]((?!tests/|examples/|src/)[a-z_]+(?:/[a-z_]+)+\.py)\b", text)
    ]
    return [name for name in names if not (PROJECT / name).exists()]


@pytest.mark.parametrize("document", [pytest.param(document, id=document.name) for document in DOCUMENTS])
def test_files_that_a_page_names_are_there(document: Path) -> None:
    assert missing_files(document.read_text()) == []


def test_a_file_that_is_not_there_is_noticed() -> None:
    text = "See `tests/test_nothing.py`, `storage/nothing.py` and a line with producer/nothing.py  in it; `tests/cli` is there."
    assert missing_files(text) == [
        "tests/test_nothing.py",
        "src/pylog/storage/nothing.py",
        "src/pylog/producer/nothing.py",
    ]


def test_the_readme_fits_on_two_screens() -> None:
    assert len((PROJECT / "README.md").read_text().splitlines()) <= 120
