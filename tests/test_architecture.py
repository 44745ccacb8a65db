"""The rules of CONTRIBUTING.md, "Where things go", held on the source text. Every rule is seen to
fail."""

from __future__ import annotations

import ast
import builtins
import functools
import re
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from pylog import errors
from tests.conftest import ONE_CODEC, TESTS
from tests.findings import expect_none

PACKAGE = Path(__file__).parents[1] / "src" / "pylog"
RULES = "The rules: CONTRIBUTING.md, 'Where things go'; which room is below which: the head of src/pylog/__init__.py"
LINES_MAX = 400
# The public faces: much of them is docstrings, which users read in one place.
FACES = {"log.py", "partition/partition.py", "producer/producer.py", "consumer/consumer.py"}

# A room may use every room on the lines below its own, and no other on its own line. Of some rooms
# only the place is decided: aio, replication and observe are not built yet.
HOUSE = """
    __init__ | __main__
    cli | aio | spark | testing | outbox | tables
    log | producer | consumer
    topic_changes
    transaction
    group | cleaner | backup | replication
    manager
    partition | catalog
    segment
    index
    arrow
    codec | storage
    clock | observe | turn | checks | database
    interrupts
    model | limits
    errors
    kafka_names
"""
HEIGHT = {room: -depth for depth, line in enumerate(HOUSE.splitlines()) for room in re.findall(r"\w+", line)}
NEVER = {"index -> codec": "an index knows positions, not records"}
# What a Spark executor loads, light and read-only. The driver's part of spark imports other rooms
# inside its functions.
EXECUTOR = {
    "partition",
    "catalog",
    "segment",
    "index",
    "codec",
    "storage",
    "arrow",
    "clock",
    "interrupts",
    "model",
    "limits",
    "errors",
}

OUTSIDE = frozenset({"storage", "cli", "testing"})  # the rooms that touch the operating system
ROOMS_OF: dict[str, Collection[str]] = {
    **dict.fromkeys(("os", "io", "mmap", "fcntl", "shutil", "tempfile", "socket", "select", "signal"), OUTSIDE),
    **dict.fromkeys(("glob", "subprocess", "multiprocessing", "ctypes", "secrets"), OUTSIDE),
    **dict.fromkeys(("pickle", "marshal", "shelve", "importlib", "runpy", "code"), frozenset()),
    **dict.fromkeys(("zstandard", "lz4", "cramjam"), frozenset({"codec"})),
    **dict.fromkeys(("pyarrow", "pandas"), frozenset({"arrow", "spark"})),
    "random": OUTSIDE | {"producer"},  # a keyless record goes to any partition
    "time": {"clock"},
    "asyncio": {"testing"},
    "crc32c": HEIGHT,
    "mmh3": {"codec", "producer"},
    "kafka": {"cli"},
    "pyspark": {"spark"},
    "pytest": {"testing"},
    "rich": {"cli"},
    "rocksdict": {"tables"},
}
# What no signal handler raises; what it may raise, an ``except`` names in ``own`` alone.
NEVER_A_HANDLERS = {"ImportError", "ModuleNotFoundError", "RecursionError", "UnicodeDecodeError", "UnicodeEncodeError"}
TAKES_ALL = {"cli", "testing"}  # programs: whatever it is, it ends them
LAZILY = {"asyncio", "pyarrow", "pandas", "typing_extensions"}  # any room, in a function or for the type checker
NEEDS_A_REASON = {"threading", "_thread", "queue", "concurrent"}  # in a comment on the import's line or just above it
ON_A_PATH = {
    *("read_bytes", "read_text", "write_bytes", "write_text", "iterdir", "rglob", "touch", "mkdir", "rmdir", "unlink"),
    *("exists", "is_file", "is_dir", "is_symlink", "stat", "lstat", "chmod", "samefile", "expanduser", "resolve"),
}
COMPILED_MAY_USE = re.compile(
    r"cython|cpython|libc\.(string|stdint|limits|stdlib)|struct|collections\.abc|pylog\.(codec|model|errors)"
)

# What a file does all the same, and why.
EXCEPTIONS: dict[str, dict[str, str]] = {
    "__init__.py": {"importlib": "loads each public name, all of them constants, when it is first used"},
    "codec/__init__.py": {"os": "PYLOG_PURE_PYTHON=1 chooses the readable codec"},
    "codec/checksum.py": {"importlib": "loads one library's extension by a constant name, without its costly package"},
    "interrupts.py": {"signal": "asks which signal handlers are installed"},
    "producer/linger.py": {
        "except": "handlers run in no thread but the main one; and at exit the other producers' records go first"
    },
    "spark/jvm/__main__.py": {"os": "a program, which keeps its stdout for answers before anything may print"},
    "spark/session.py": {
        "os": "PYSPARK_GATEWAY_PORT: spark-submit has started the JVM; PySpark does not tell otherwise"
    },
}


class Import(NamedTuple):
    name: str
    line: int
    lazy: bool  # inside a function, or for the type checker only


def violations(file: str, source: str) -> Iterator[str]:
    """The rules that ``source`` breaks, standing at ``file`` below src/pylog."""
    room = Path(file).parts[0].removesuffix(".py")
    excused = EXCEPTIONS.get(file, {})
    lines = source.splitlines()
    if room not in HEIGHT:
        yield f"{file}: {room} is no room; give it a line in src/pylog/__init__.py and here"
        return
    if len(lines) > LINES_MAX and file not in FACES:
        yield f"{file}: {len(lines)} lines, more than {LINES_MAX}: is it still one job?"
    if file.endswith((".pyx", ".pxi")):
        names = re.findall(r"^\s*(?:from|c?import)\s+([\w.]+)", source, re.MULTILINE)
        yield from (f"{file}: {name} in the compiled module" for name in names if not COMPILED_MAY_USE.match(name))
        return
    tree = ast.parse(source)
    found = [*imports(file, tree)]
    for item in found:
        if item.name.partition(".")[0] not in excused and (complaint := about_import(room, item, lines)):
            yield f"{file}:{item.line}: {complaint}"
    paths = any(item.name.startswith("pathlib") for item in found)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (complaint := about_call(room, node.func, paths)):
            yield f"{file}:{node.lineno}: {complaint}"
        if room not in TAKES_ALL and "except" not in excused and (complaint := about_except(node)):
            yield f"{file}:{line_of(node)}: {complaint}"
        if room == "producer" and file != "producer/batch.py" and changes_a_batch(node):
            yield f"{file}:{line_of(node)}: only batch.py changes the fields of a batch"
        if loop := loop_in_a_lock(node):
            yield f"{file}:{loop}: a loop where a lock is held; put it into a function, see turn.py"


def line_of(node: ast.AST) -> int:
    return getattr(node, "lineno", 0)


def changes_a_batch(node: ast.AST) -> bool:
    targets = [*getattr(node, "targets", []), getattr(node, "target", None)]
    each = [item for target in targets if target is not None for item in ast.walk(target)]
    return any(isinstance(item, ast.Attribute) and ast.unparse(item.value).endswith("batch") for item in each)


def about_except(node: ast.AST) -> str | None:
    """What takes the exception of a signal handler for an answer to what pylog has asked."""
    if (
        isinstance(node, ast.ImportFrom)
        and node.module == "contextlib"
        and any(n.name == "suppress" for n in node.names)
    ):
        return "contextlib.suppress takes a signal handler's exception, too; use that of pylog.interrupts"
    if not isinstance(node, ast.ExceptHandler) or node.type is None:
        return None
    names = {name.id for name in ast.walk(node.type) if isinstance(name, ast.Name)}
    kinds = {name for name in names if isinstance(getattr(builtins, name, None), type)}
    kinds |= names & {"NOT_MINE", *vars(errors)}
    passes_on = isinstance(node.body[-1], ast.Raise) and node.body[-1].exc is None
    asks = any("is_of_handler(" in ast.unparse(line) for line in node.body)
    if "own" in names or passes_on or asks or not kinds - NEVER_A_HANDLERS:
        return None
    return f"a signal handler may raise {', '.join(sorted(kinds))}, too: except own(...), see pylog.interrupts"


def loop_in_a_lock(node: ast.AST) -> int | None:
    """The line of a loop whose own ``with`` or ``try`` frees a lock: Python 3.13 lets a signal's
    exception slip out of it."""
    if isinstance(node, ast.With):
        frees = any(re.search(r"lock$", ast.unparse(item.context_expr)) for item in node.items)
    else:
        frees = isinstance(node, ast.Try) and bool(
            re.search(r"(leave|release)\(\)", "".join(map(ast.unparse, node.finalbody)))
        )
    loops = (ast.For, ast.While, ast.ListComp, ast.SetComp, ast.DictComp)
    inside = (item for line in node.body for item in ast.walk(line)) if frees else ()  # type: ignore[attr-defined]
    return next((item.lineno for item in inside if isinstance(item, loops)), None)


def imports(file: str, node: ast.AST, lazy: bool = False) -> Iterator[Import]:
    """What is imported below ``node``, by full name: ``from os import environ`` is
    ``os.environ``."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (Import(alias.name, child.lineno, lazy) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            package = ["pylog", *Path(file).parts][: -child.level] if child.level else []
            base = ".".join([*package, child.module or ""]).rstrip(".")
            yield from (Import(f"{base}.{alias.name}", child.lineno, lazy) for alias in child.names)
        else:
            function = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef))
            typing = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
            yield from imports(file, child, lazy or function or typing)


def about_import(room: str, item: Import, lines: list[str]) -> str | None:
    top, _, rest = item.name.partition(".")
    if top == "pylog":
        return about_room(room, rest.partition(".")[0], item.lazy)
    if top in NEEDS_A_REASON and not has_a_reason(*lines[max(item.line - 2, 0) : item.line]):
        return f"{top} needs a comment beside or above the import that says why"
    rooms = ROOMS_OF.get(top, HEIGHT if top in sys.stdlib_module_names else ())
    if room not in rooms and not (item.lazy and top in LAZILY):
        return f"{room} may not import {top}; only {sorted(rooms)}"
    return None


def about_room(room: str, target: str, lazy: bool) -> str | None:
    arrow = f"{room} -> {target}"
    if target not in HEIGHT:
        return None if HEIGHT[room] >= HEIGHT["cli"] else f"import {target!r} from the module that defines it"
    if target == room:
        return None
    if HEIGHT[target] >= HEIGHT[room]:
        return f"{arrow} points {'sideways' if HEIGHT[target] == HEIGHT[room] else 'up'}"
    if room == "spark" and not lazy and target not in EXECUTOR:
        return f"{arrow} is for the driver alone: import it inside the function"
    return f"{arrow}: {NEVER[arrow]}" if arrow in NEVER else None


def has_a_reason(*above_and_beside: str) -> bool:
    above, beside = ("", *above_and_beside)[-2:]
    comments = [above.strip() if above.strip().startswith("#") else "", beside.partition("#")[2]]
    return any(len(comment.strip("# ").split()) > 2 and "noqa" not in comment for comment in comments)


def about_call(room: str, function: ast.expr, paths: bool) -> str | None:
    called = ast.unparse(function)
    owner, _, method = called.rpartition(".")
    if called in {"eval", "exec", "compile", "__import__"}:
        return f"{called} runs what it is given"
    if re.search(r"\b(datetime|date)\.(now|utcnow|today)$", called):
        return f"{called} reads a clock that no test can move; use pylog.clock"
    if room in OUTSIDE:
        return None
    if re.search(r"\buuid[14]$", called):
        return f"{called} draws what no test can repeat; use the filesystem's random_bytes"
    if called in {"open", "input"}:
        return f"{called} touches the operating system; only {sorted(OUTSIDE)}"
    if paths and method in ON_A_PATH and not owner.endswith("filesystem"):
        return f"{called} is I/O: here a path is a name, the filesystem of pylog.storage does the work"
    return None


FILES = sorted(
    str(file.relative_to(PACKAGE)) for suffix in ("py", "pyx", "pxi") for file in PACKAGE.rglob(f"*.{suffix}")
)


def test_the_head_of_the_package_lists_the_rooms_in_the_order_that_is_checked() -> None:
    head = re.findall(r"^#   ((?:\w+  )*\w+) {3,}\w", (PACKAGE / "__init__.py").read_text(), re.MULTILINE)
    built = {path.stem for path in PACKAGE.iterdir() if path.suffix in ("", ".py") and not path.stem.startswith("__")}
    lines = [[room for room in re.findall(r"\w+", line) if room in built] for line in HOUSE.splitlines()]
    assert [line.split("  ") for line in head] == [line for line in lines if line]
    assert built <= HEIGHT.keys()


def not_listed(text: str, files: Collection[str]) -> set[str]:
    """The files that the list at the head of a room lacks. A head that names one file at most has
    no list."""
    named = {file for file in files if re.search(rf"\b{re.escape(file)}", text)}
    return set(files) - named if len(named) > 1 else set()


@pytest.mark.parametrize(
    "room", sorted(str(path.parent.relative_to(PACKAGE)) for path in PACKAGE.glob("*/**/__init__.py"))
)
def test_the_list_at_the_head_of_a_room_has_all_of_its_files(room: str) -> None:
    head = ast.get_docstring(ast.parse((PACKAGE / room / "__init__.py").read_text())) or ""
    files = {path.name for path in (PACKAGE / room).glob("*.py")} - {"__init__.py", "__main__.py"}
    assert not_listed(head, files) == set()


def test_a_file_that_the_head_of_a_room_lacks_is_found() -> None:
    files = {"one.py", "two.py", "three.py"}
    assert not_listed("one.py  first\ntwo.py  second", files) == {"three.py"}
    assert not_listed("one.py, two.py and three.py", files) == not_listed("See one.py.", files) == set()


@pytest.mark.parametrize("file", FILES)
def test_a_file_keeps_the_rules_of_the_house(file: str) -> None:
    expect_none(violations(file, (PACKAGE / file).read_text()), RULES)


@pytest.mark.parametrize(("file", "what"), [(file, what) for file in EXCEPTIONS for what in EXCEPTIONS[file]])
def test_an_exception_is_still_needed(file: str, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(EXCEPTIONS[file], what)
    assert list(violations(file, (PACKAGE / file).read_text())) != []


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("codec/batch.py", "import struct, zlib\nfrom pylog import errors\nfrom pylog.codec import format\n"),
        ("log.py", "from pathlib import Path\ndef f(self, p: Path): return self._filesystem.exists(p / 'x')\n"),
        ("log.py", "from pylog.group.coordinator import describe\n"),
        ("partition/partition.py", "if TYPE_CHECKING:\n    import pyarrow\n"),
        ("partition/write/writer.py", "# Threads of this process share one lock.\nimport threading\n"),
        ("producer/sender.py", "import threading  # the flusher is a thread\n"),
        ("storage/os_filesystem.py", "import os\nfile = open('x')\n"),
        ("cli/main.py", "from pylog import Log, __version__\n"),
        (
            "producer/topic_cache.py",
            "with self._lock:\n    self._refresh()\nfor x in y:\n    with self._lock:\n        pass\n",
        ),
        ("log.py", "try:\n    f()\nexcept own(OSError, ValueError):\n    pass\nexcept zlib.error:\n    pass"),
        ("log.py", "try:\n    f()\nexcept Exception:\n    g()\n    raise"),
        ("producer/batch.py", "batch.state = OPEN"),
        ("producer/sender.py", "batches = batch.count"),
        ("codec/_records.pyx", "from libc.string cimport memcpy\nfrom pylog.model import Record\n"),
    ],
)
def test_what_the_rules_allow_passes(file: str, source: str) -> None:
    assert list(violations(file, source)) == []


@pytest.mark.parametrize(
    ("file", "source", "complaint"),
    [
        ("segment/writer.py", "from pylog.partition.write.writer import x", "segment -> partition points up"),
        ("segment/writer.py", "from ..partition import writer", "segment -> partition points up"),
        ("codec/batch.py", "import pylog.storage", "codec -> storage points sideways"),
        ("producer/sender.py", "def f():\n    from pylog import consumer", "producer -> consumer points sideways"),
        ("group/offsets.py", "from pylog.log import Log", "group -> log points up"),
        ("group/offsets.py", "if TYPE_CHECKING:\n    from pylog.log import Log", "group -> log points up"),
        ("manager/manager.py", "def f():\n    from pylog.group.admin import GroupAdmin", "manager -> group points up"),
        ("producer/sender.py", "if TYPE_CHECKING:\n    from pylog.log import Log", "producer -> log points sideways"),
        ("index/entries.py", "from pylog.codec import format", "index -> codec: an index knows positions"),
        ("spark/source/batch.py", "from pylog.log import Log", "spark -> log is for the driver alone"),
        ("partition/write/writer.py", "from pylog import Record", "import 'Record' from the module that defines it"),
        ("misc.py", "", "misc is no room"),
        ("log.py", "import os", "log may not import os"),
        ("partition/write/writer.py", "from os import getpid", "partition may not import os"),
        ("consumer/fetcher.py", "import time", "consumer may not import time"),
        ("consumer/fetcher.py", "import random", "consumer may not import random"),
        ("producer/delivery.py", "import asyncio", "producer may not import asyncio"),
        ("arrow.py", "import polars", "arrow may not import polars"),
        ("cli/main.py", "def f():\n    import pickle", "cli may not import pickle"),
        ("group/offsets.py", "eval('1')", "eval runs what it is given"),
        ("group/offsets.py", "datetime.datetime.now()", "reads a clock"),
        ("group/offsets.py", "uuid.uuid4()", "draws what no test can repeat"),
        ("group/offsets.py", "x = 1\nimport threading  # noqa: F401", "threading needs a comment"),
        ("catalog/layout.py", "open('x')", "open touches the operating system"),
        ("catalog/layout.py", "from pathlib import Path\nPath('x').mkdir()", "mkdir is I/O"),
        ("catalog/layout.py", "\n" * 401, "401 lines"),
        ("producer/topic_cache.py", "with a, self._lock:\n    x = [y for y in z]", "2: a loop where a lock is held"),
        ("producer/sender.py", "try:\n    while x:\n        f()\nfinally:\n    turn.leave()", "2: a loop where"),
        ("storage/locked.py", "try:\n    while x:\n        f()\nfinally:\n    lock.release()", "2: a loop where"),
        ("producer/sender.py", "a, self.batch.due_s = 1, 2", "only batch.py changes"),
        ("producer/sender.py", "batch.count += 1", "only batch.py changes"),
        ("log.py", "try:\n    f()\nexcept OSError:\n    pass", "3: a signal handler may raise OSError"),
        (
            "producer/sender.py",
            "try:\n    f()\nexcept (A, ValueError) as error:\n    g()\n    raise B",
            "may raise ValueError",
        ),
        (
            "partition/write/writer.py",
            "try:\n    f()\nfinally:\n    try:\n        g()\n    except NOT_MINE:\n        pass",
            "NOT_MINE",
        ),
        ("group/lock.py", "from contextlib import suppress", "contextlib.suppress takes"),
        ("codec/_records.pyx", "from libc.stdio cimport fopen", "libc.stdio in the compiled module"),
        ("codec/_headers.pxi", "\n" * 401, "401 lines"),
    ],
)
def test_what_the_rules_forbid_is_found(file: str, source: str, complaint: str) -> None:
    (found,) = violations(file, source)
    assert complaint in found


# The rooms inside of partition: reading takes no lock and writes nothing, so it loads no part that
# does.

_WRITES = r"partition\.(write|repair|compact|grant|partition|partition_log|Partition)\b|segment\.(writer|files|SegmentWriter)\b"
BEHIND_THE_LOCK = (
    ("partition/read/", _WRITES, "reading loads no part that writes"),
    ("partition/producers/", _WRITES, "readers load it, so it loads no part that writes"),
    (
        "partition/(commit_slots|directory|epochs|segments|cleaner_checkpoint).py",
        _WRITES,
        "readers load it, so it loads no part that writes",
    ),
    ("partition/repair/", r"partition\.(write|partition|partition_log)\b", "repair knows nothing of the writer"),
    ("partition/verify/", _WRITES, "the check of a log only reads"),
    (
        "(?!partition/(write|repair|compact)/)",
        r"partition\.grant\b",
        "only write, repair and compact change a partition",
    ),
    (
        "spark/source/",
        r"partition\.(?!(read|segments|directory|commit_slots)\b)|segment\.(writer|files)\b",
        "executors load what reads, and no more",
    ),
)


def behind_the_lock(file: str, source: str) -> list[str]:
    """The imports of ``source``, lazy ones too, that are not for a file that stands there."""
    found = [(item.name.removeprefix("pylog."), item.line) for item in imports(file, ast.parse(source))]
    return [
        f"{file}:{line}: {name}: {why}"
        for who, what, why in BEHIND_THE_LOCK
        for name, line in found
        if re.match(who, file) and re.match(what, name)
    ]


@pytest.mark.parametrize("file", [file for file in FILES if file.endswith(".py")])
def test_only_who_holds_the_lock_loads_what_writes(file: str) -> None:
    expect_none(behind_the_lock(file, (PACKAGE / file).read_text()), RULES)


@pytest.mark.parametrize(
    ("file", "source", "complaint"),
    [
        ("partition/read/reader.py", "from pylog.partition.write.writer import x", "reading loads no part that writes"),
        ("partition/read/reader.py", "def f():\n    from pylog.partition.repair import x", "reading loads"),
        ("partition/read/reader.py", "from pylog.partition import Partition", "reading loads no part that writes"),
        (
            "partition/read/reader.py",
            "from pylog.segment.writer import SegmentWriter",
            "reading loads no part that writes",
        ),
        ("partition/directory.py", "from pylog.segment.writer import SegmentWriter", "readers load it"),
        ("partition/repair/recovery.py", "from pylog.partition.write import writer", "knows nothing of the writer"),
        ("partition/verify/segment.py", "from pylog.partition.write import writer", "only reads"),
        (
            "partition/partition_log.py",
            "from pylog.partition.grant import Grant",
            "only write, repair and compact change",
        ),
        ("partition/read/resync.py", "def f():\n    from pylog.segment.files import sweep", "reading loads"),
        ("partition/read/tail.py", "from pylog.segment import files", "reading loads"),
        ("partition/verify/findings.py", "from pylog.partition.repair import recovery", "only reads"),
        ("partition/cleaner_checkpoint.py", "from pylog.segment import writer", "readers load it"),
        ("spark/source/ranges.py", "from pylog.segment.writer import SegmentWriter", "executors load what reads"),
        ("spark/source/batch.py", "from pylog.partition.write import writer", "executors load what reads"),
        ("spark/source/batch.py", "def f():\n    from pylog.partition import Partition", "executors load what reads"),
    ],
)
def test_what_writes_is_found_where_it_is_not_for(file: str, source: str, complaint: str) -> None:
    (found,) = behind_the_lock(file, source)
    assert complaint in found


@functools.cache
def names_of_files() -> set[str]:
    return {Path(file).name for file in FILES} | {file.name for file in TESTS.rglob("*.py")} | {"setup.py"}


def missing_files(source: str) -> set[str]:
    """The Python files that a source names and that neither the package nor its tests have."""
    return {*re.findall(r"\b\w+\.(?:pyx?|pxi)\b", source)} - names_of_files()


@pytest.mark.parametrize("file", FILES)
def test_a_file_that_the_source_names_is_there(file: str) -> None:
    missing = missing_files((PACKAGE / file).read_text())
    expect_none(
        sorted(missing), f"src/pylog/{file} names these files, which are not there: name what they are called now"
    )


def test_a_file_that_is_gone_is_found() -> None:
    assert missing_files("See ``writer.py``, not ``written_by_nobody.py``.") == {"written_by_nobody.py"}


def test_what_is_run_with_one_codec_only_is_there() -> None:
    gone = [place for place in ONE_CODEC if not (TESTS / place).exists()]
    expect_none(
        gone, "ONE_CODEC in tests/conftest.py names these tests, which are not there: rename or delete its lines"
    )
