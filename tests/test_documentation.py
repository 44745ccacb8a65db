"""What README.md and docs/ print runs: Python, shell, the examples for pytest and Spark. Their
links and files exist.

The blocks of a document run in order, in one directory of their own, each in a process of its own.
``console`` blocks, which show answers, are compared by ``tests/cli/test_docs.py``.
"""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import pylog
import pylog.spark
from pylog import Log, errors
from pylog.codec.format import CODEC_NAMES
from pylog.group.assignor import ASSIGNORS
from pylog.outbox import Outbox
from pylog.producer.partitioner import KEY_HASHES, NAMED_PARTITIONERS
from tests.conftest import jar_problem, java_problem
from tests.findings import expect_none

PROJECT = Path(__file__).parents[1]
DOCUMENTS = [PROJECT / "README.md", PROJECT / "SECURITY.md", *sorted((PROJECT / "docs").glob("*.md"))]
PAGES = [
    *DOCUMENTS,
    PROJECT / "CONTRIBUTING.md",
    PROJECT / "benchmarks" / "README.md",
    *PROJECT.glob("examples/*/README.md"),
]
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
def test_the_loop_in_transactions_goes_on_where_it_stopped(tmp_path: Path) -> None:
    found = [block for block in blocks(PROJECT / "docs" / "transactions.md") if block.language == "python"]
    send, go_on = found[0], next(block for block in found if "send_offsets_to_transaction" in block.code)
    for times, expected in ((1, 1), (0, 1), (2, 3)):
        for _ in range(times):
            run(send, tmp_path)
        run(go_on, tmp_path)
        with Log(tmp_path / "var" / "billing") as log:
            mails = [record.value for record in log.partition("mails", 0).scan()]
        assert mails == [b"Please pay 200 USD"] * expected


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
    together = [block.code for block in found if block.needs_spark and "session_builder" not in block.code]
    assert len(together) >= 2
    shown = run(Block(0, "python", WITH_SPARK + "".join(together)), tmp_path, 500)  # one session is enough
    assert "|  costco|     2|  650|" in shown
    assert "query sales is 0 offsets behind" in shown
    assert "|chair|   45|" in shown
    assert "|lamp|" not in shown.replace(" ", "")
    with Log(tmp_path / "var" / "sales") as log:
        assert set(log.lag("copy").values()) == {0}
    if jar_problem() is None:
        (with_jar,) = (block for block in found if "session_builder" in block.code)  # a JVM of its own
        shown = run(with_jar, tmp_path, 200)
        assert "Row(count(1)=" in shown
        assert "aggregates [count(*)] by partition" in shown


def anchors(document: Path) -> set[str]:
    """The fragments that lead to headings of a page, as GitHub makes them."""
    text = re.sub(r"^```.*?^```$", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def dead_links(document: Path, text: str) -> list[str]:
    """Links to files, and to headings of pages, that are not there."""
    problems = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        name, _, fragment = target.partition("#")
        page = document.parent / name if name else document
        if "://" not in target and (not page.exists() or (fragment and fragment not in anchors(page))):
            problems.append(target)
    return problems


@pytest.mark.parametrize(
    "document", [pytest.param(document, id=str(document.relative_to(PROJECT))) for document in PAGES]
)
def test_links_lead_somewhere(document: Path) -> None:
    expect_none(dead_links(document, document.read_text()), "Neither a file nor a heading of one")


def test_a_dead_link_is_noticed() -> None:
    api = PROJECT / "docs" / "api.md"
    dead = ["nothing.md", "groups.md#nothing", "#nothing"]
    assert dead_links(api, "".join(f"[a]({target})" for target in dead)) == dead
    assert dead_links(api, "[a](groups.md#life-and-death) [b](#log-options) [c](https://kafka.apache.org/#none)") == []


def test_the_readme_links_every_page() -> None:
    text = (PROJECT / "README.md").read_text()
    pages = [*sorted((PROJECT / "docs").glob("*.md")), *PROJECT.glob("examples/*/README.md")]
    names = [str(page.relative_to(PROJECT)) for page in pages]
    unlinked = [name for name in names if f"({name})" not in text]
    expect_none(unlinked, "Add a link to README.md, section Documentation")


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


def test_the_values_of_the_api_page_are_in_the_package_with_these_fields_and_properties() -> None:
    text = (PROJECT / "docs" / "api.md").read_text()
    section = re.search(r"^## Values\n(.*?)(?=^## )", text, re.MULTILINE | re.DOTALL)
    assert section is not None
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", section[1], re.MULTILINE)
    assert len(rows) > 20
    for name, cell in rows:
        kind = getattr(pylog, name)
        properties = {each for each, value in vars(kind).items() if isinstance(value, property) and each[0] != "_"}
        fields = set(getattr(kind, "_fields", inspect.signature(kind).parameters))
        assert set(re.findall(r"\*`(\w+)`\*", cell)) == properties, name
        assert fields <= set(re.findall(r"`(\w+)(?:`|=)", cell)), name


@pytest.mark.parametrize(
    ("heading", "names"),
    [
        ("Outbox", {"Outbox", "add", "create_table", "relay"}),
        ("StoredOffsets", {"create_table", "transaction", "save", "restore"}),
        ("Spark", set(pylog.spark.__all__) - {"PylogDataSource"}),
    ],
)
def test_the_api_page_has_the_calls_of_a_room_beside_the_faces(heading: str, names: set[str]) -> None:
    section = section_of((PROJECT / "docs" / "api.md").read_text(), heading)
    assert set(re.findall(r"^\| `(\w+)\(", section, re.MULTILINE)) == names


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
    expect_none(missing_options(text), "Change the tables of options in docs/api.md")
    assert missing_options(text.replace('| `acks` | `"all"` |', "| `acks` | 1 |")) != []
    assert missing_options(text.replace("| `max_poll_records` |", "| `max_records` |")) != []


KINDS = {
    name: kind for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, errors.PylogError)
}
OF_ANY_CALL = {"ConfigError", "Closed", "StorageError", "LogNotFound", "InvalidTopicName", "FormatVersionError"}
FACES = (
    pylog.Log, pylog.Producer, pylog.Consumer, pylog.Partition, pylog.Delivery, pylog.Table, pylog.WritableTable,
    Outbox,
)  # fmt: skip


def rows_of(text: str, kind: type) -> Iterator[tuple[str, object, str]]:
    """The public methods and properties of a class, each with its row."""
    section = section_of(text, kind.__name__)
    for name, member in vars(kind).items():
        if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, property)):
            yield name, member, "".join(re.findall(rf"^\|.*`{name}[(`].*$", section, re.MULTILINE))


def missing_errors(text: str) -> list[str]:
    """Public methods without a row, and errors that a method's docstring names and its row does
    not."""
    problems = []
    for kind in FACES:
        for name, member, row in rows_of(text, kind):
            if not row:
                problems.append(f"{kind.__name__}.{name} has no row")
                continue
            named = set(re.findall(r"\w+", inspect.getdoc(member) or "")) & KINDS.keys()
            problems += [
                f"{kind.__name__}.{name}: {error}" for error in sorted(named - OF_ANY_CALL) if error not in row
            ]
    return problems


def test_the_api_page_has_every_method_and_the_errors_that_its_docstring_names() -> None:
    text = (PROJECT / "docs" / "api.md").read_text()
    expect_none(missing_errors(text), "Change the tables of methods in docs/api.md, or the docstrings")
    assert missing_errors(text.replace("| `TopicExists`, ", "| ")) == ["Log.create_topic: TopicExists"]
    assert missing_errors(text.replace("`wakeup()`", "`wake()`")) == ["Consumer.wakeup has no row"]
    without = text.replace("not all or none | `NotAppended`", "not all or none | `Refused`")
    assert missing_errors(without) == ["WritableTable.update: NotAppended"]


def test_the_api_page_says_which_errors_any_call_may_raise() -> None:
    text = (PROJECT / "docs" / "api.md").read_text()
    head = text[text.index("Any call may raise") : text.index("\n## ")]
    assert {error for error in OF_ANY_CALL if f"`{error}`" not in head} == set()


def missing_parameters(text: str) -> list[str]:
    """Parameters of public methods that the signature in the method's row has not."""
    problems = []
    for kind in FACES:
        for name, member, row in rows_of(text, kind):
            if inspect.isfunction(member):
                shown = " ".join(re.findall(rf"`{name}\(([^`]*)\)`", row))
                problems += [
                    f"{kind.__name__}.{name}: {parameter}"
                    for parameter, its in list(inspect.signature(member).parameters.items())[1:]
                    if its.kind is not inspect.Parameter.VAR_KEYWORD and not re.search(rf"\b{parameter}\b", shown)
                ]
    return problems


def test_the_api_page_has_every_parameter_of_every_method() -> None:
    text = (PROJECT / "docs" / "api.md").read_text()
    expect_none(missing_parameters(text), "Change the signatures in the tables of methods in docs/api.md")
    assert missing_parameters(text.replace("pop(key, default=…)", "pop(key)")) == ["WritableTable.pop: default"]


OF_CLASSES = {
    "Log options": pylog.Log,
    "Producer options": pylog.Producer,
    "Consumer options": pylog.Consumer,
    "TopicConfig": pylog.TopicConfig,
}


def options_not_in(docstring: str, options: Iterable[str]) -> list[str]:
    return [option for option in options if not re.search(rf"``{option}(``|=)", docstring)]


@pytest.mark.parametrize("heading", OPTIONS)
def test_the_docstring_of_a_class_has_every_option(heading: str) -> None:
    docstring, options = inspect.getdoc(OF_CLASSES[heading]) or "", OPTIONS[heading]
    expect_none(options_not_in(docstring, options), f"Describe them in the docstring of {OF_CLASSES[heading].__name__}")
    assert options_not_in(docstring, [*options, "new"]) == ["new"]


def test_the_docstring_of_a_consumer_has_a_line_for_every_option() -> None:
    """A list, so an option that another one's line mentions still needs its own."""
    heads = re.findall(r"^- ([^:]+):", inspect.getdoc(pylog.Consumer) or "", re.MULTILINE)
    assert sorted(re.findall(r"``(\w+)``", " ".join(heads))) == sorted(OPTIONS["Consumer options"])


VALUES: dict[tuple[str, str], Iterable[str]] = {
    ("TopicConfig", "compression_type"): ("producer", *CODEC_NAMES),
    ("TopicConfig", "message_timestamp_type"): ("CreateTime", "LogAppendTime"),
    ("TopicConfig", "partitioner"): KEY_HASHES,
    ("TopicConfig", "retention"): ("consumed",),
    ("TopicConfig", "retention_clock"): ("record", "append"),
    ("TopicConfig", "cleanup_policy"): ("delete", "compact", "compact,delete", "none"),
    ("Producer options", "acks"): ("all",),
    ("Producer options", "compression"): CODEC_NAMES,
    ("Producer options", "partitioner"): NAMED_PARTITIONERS,
    ("Consumer options", "assignor"): ASSIGNORS,
    ("Consumer options", "auto_offset_reset"): ("latest", "earliest", "none", "by_duration:PT1H"),
    ("Consumer options", "isolation_level"): ("read_uncommitted", "read_committed"),
    ("Consumer options", "visibility"): ("written", "durable"),
    ("Table options", "store"): ("memory", "rocksdict"),
    ("Table options", "values"): ("stored", "positions"),
    ("Table options", "isolation_level"): ("read_uncommitted", "read_committed"),
}


def missing_values(text: str) -> list[str]:
    """Values of options that are not quoted in the option's rows."""
    problems = []
    for (heading, option), values in VALUES.items():
        rows = section_of(text, heading).partition(f"| `{option}` |")[2]
        rows = rows if option == "partitioner" else rows.partition("\n")[0]  # a producer's has a table of its own
        problems += [f"{option}: {value}" for value in values if f'"{value}"' not in rows]
    return problems


def test_the_api_page_has_every_value_of_an_option() -> None:
    text = (PROJECT / "docs" / "api.md").read_text()
    expect_none(missing_values(text), "Change the tables of options in docs/api.md")
    assert missing_values(text.replace('`"round_robin"` |', "|")) == ["partitioner: round_robin"]
    assert missing_values(text.replace('`"range"`', "ranges")) == ["assignor: range"]


def missing_metrics(text: str, heading: str, metrics: dict[str, float]) -> list[str]:
    """Names that ``metrics()`` has and the page has not, or the other way round."""
    row = re.search(r"^\| [^|]*`metrics\(\)` \| ([^|]*) \|", section_of(text, heading), re.MULTILINE)
    assert row is not None, heading
    return sorted(metrics.keys() ^ set(re.findall(r"`(\w+)`", row[1].partition("counts: ")[2])))


def test_the_api_page_has_every_metric(tmp_path: Path) -> None:
    text = (PROJECT / "docs" / "api.md").read_text()
    with Log(tmp_path / "log") as log:
        log.create_topic("t")
        with pylog.Producer(log) as producer, pylog.Consumer(log) as consumer, pylog.table(log, "t") as table:
            clients: dict[str, Any] = {"Producer": producer, "Consumer": consumer, "Table": table}
            for heading, client in clients.items():
                missing = missing_metrics(text, heading, client.metrics())
                expect_none(missing, f"Change the row of metrics() in docs/api.md, section {heading}")
                assert missing_metrics(text, heading, {**client.metrics(), "new": 0}) == ["new"]


def test_the_api_page_has_every_error_and_marks_those_worth_a_retry() -> None:
    named = section_of((PROJECT / "docs" / "api.md").read_text(), "Errors")
    assert len(KINDS) > 30
    missing = [name for name, kind in KINDS.items() if f"`{name}`" not in named and kind is not errors.PylogError]
    expect_none(missing, "Add them to docs/api.md, section Errors, with a * if they are retriable")
    for kind in KINDS.values():
        assert (f"`{kind.__name__}`*" in named) == kind.retriable, kind.__name__


def missing_files(text: str) -> list[str]:
    """Tests, sources and scripts that a page names and that are not there."""
    names = re.findall(r"`((?:tests|scripts|examples|benchmarks|src)/[\w./-]+)(?=[`\s])", text)
    names += [
        f"src/pylog/{name}" for name in re.findall(r"[`( ]((?!tests/|examples/|src/)[a-z_]+(?:/[a-z_]+)+\.py)\b", text)
    ]
    return [name for name in names if not (PROJECT / name).exists()]


@pytest.mark.parametrize(
    "document", [pytest.param(document, id=str(document.relative_to(PROJECT))) for document in PAGES]
)
def test_files_that_a_page_names_are_there(document: Path) -> None:
    expect_none(missing_files(document.read_text()), "The page names these files, which are not there")


def test_a_file_that_is_not_there_is_noticed() -> None:
    text = "See `tests/test_nothing.py`, `storage/nothing.py` and a line with producer/nothing.py  in it; `tests/cli` is there."
    assert missing_files(text) == [
        "tests/test_nothing.py",
        "src/pylog/storage/nothing.py",
        "src/pylog/producer/nothing.py",
    ]


def events_without_test(text: str) -> list[str]:
    events = text.partition("## Processes")[2].partition("## Properties")[0]
    rows = [row.split(" | ") for row in re.findall(r"^\| (.*) \|$", events, re.MULTILINE)]
    return [row[0] for row in rows if row[0] not in ("---", "event") and "`tests/" not in row[-1]]


def test_every_event_of_the_guarantees_names_its_test() -> None:
    text = (PROJECT / "docs" / "guarantees.md").read_text()
    text = re.sub(r"^\| consumer \|.*?\n\n", "", text, flags=re.MULTILINE | re.DOTALL)  # has a line of its own below
    assert text.count("\n| ") > 40
    expect_none(events_without_test(text), "Name the test in the last column of their rows in docs/guarantees.md")
    assert events_without_test("## Processes\n| A kill | Nothing. | – |\n## Properties") == ["A kill"]


def test_the_map_leads_from_every_change_to_a_file_a_test_and_a_page() -> None:
    text = (PROJECT / "docs" / "contributing-map.md").read_text()
    rows = [row for row in re.findall(r"^\| (.*) \|$", text, re.MULTILINE) if not row.startswith(("---", "to change"))]
    assert len(rows) >= 25
    for row in rows:
        change, files, tests, page = row.split(" | ")
        assert "`" in files, change
        assert "`tests/" in tests, change
        assert "](" in page, change


def undocumented_files(root: Path) -> list[str]:
    """Files of a log that match no line of the tree in docs/format.md."""
    tree = (PROJECT / "docs" / "format.md").read_text().partition("<root>/\n")[2].partition("```")[0]
    named = [line.split("  ")[0].rpartition("/")[2] for line in map(str.strip, tree.splitlines())]
    patterns = [re.sub("<[a-z]+>", ".+", re.sub("[0-9]{20}", "[0-9]{20}", re.escape(name))) for name in named if name]
    files = [path for path in root.rglob("*") if path.is_file()]
    return [path.name for path in files if not any(re.fullmatch(pattern, path.name) for pattern in patterns)]


def named_in_vain(text: str) -> list[str]:
    """What a text says is in a file of the source, and is not."""
    found = re.findall(r"`([\w.]+)` in `(src/[\w./]+\.(?:py|pyx|pxi))`", text)
    return [
        f"{name} in {file}"
        for name, file in found
        if not re.search(rf"\b{name.split('.')[-1]}\b", (PROJECT / file).read_text())
    ]


def test_what_the_map_names_in_a_file_is_there() -> None:
    text = (PROJECT / "docs" / "contributing-map.md").read_text()
    assert text.count("` in `src/") >= 8
    assert named_in_vain(text) == []
    assert named_in_vain("`no_such_name` in `src/pylog/log.py`, `Log` in `src/pylog/log.py`") == [
        "no_such_name in src/pylog/log.py"
    ]


def test_the_tree_of_a_log_has_every_file(tmp_path: Path) -> None:
    with pylog.Log(tmp_path / "log") as log, pylog.Producer(log, linger_ms=0) as producer:
        log.create_topic("orders", segment_bytes=1024)
        for number in range(20):
            producer.send("orders", b"%d" % number * 100)
        with pylog.Consumer(log, group_id="billing", auto_offset_reset="earliest") as consumer:
            consumer.subscribe("orders")
            assert consumer.poll(1.0)
            consumer.commit()
        with pylog.Producer(log, transactional_id="x", linger_ms=0) as owner, pylog.Producer(log, name="import"):
            owner.init_transactions()
            found = {path.suffix for path in log.path.rglob("*")}
            assert {".log", ".index", ".seal", ".snapshot", ".json", ".lock"} <= found
            assert undocumented_files(log.path) == []
            (log.path / "orders-0" / "unknown.file").touch()
            assert undocumented_files(log.path) == ["unknown.file"]


def test_the_readme_fits_on_two_screens() -> None:
    assert len((PROJECT / "README.md").read_text().splitlines()) <= 120


def wide_prose(text: str) -> list[str]:
    """The lines wider than 100 columns, without code, tables and pictures."""
    prose = re.sub(r"^( *)```.*?^\1```", lambda code: "\n" * code[0].count("\n"), text, flags=re.DOTALL | re.MULTILINE)
    return [
        f"line {number}: {line}"
        for number, line in enumerate(prose.splitlines(), 1)
        if len(line) > 100 and not line.startswith(("|", "![", "    "))
    ]


@pytest.mark.parametrize("page", [*PAGES, PROJECT / "CHANGELOG.md"], ids=lambda page: str(page.relative_to(PROJECT)))
def test_prose_is_wrapped_at_100_columns(page: Path) -> None:
    assert wide_prose(page.read_text()) == []


def test_wide_prose_is_found() -> None:
    wide = "word " * 21
    assert wide_prose(f"{wide}\n") == [f"line 1: {wide}"]
    assert wide_prose(f"```python\n{wide}\n```\n{wide}\n") == [f"line 4: {wide}"]
    assert wide_prose(f"- ok\n  {wide}\n| {wide}\n![{wide}](x.svg)\n    {wide}\n") == [f"line 2:   {wide}"]
