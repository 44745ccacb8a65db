"""Data is never code: the package has no way to run what a file says, and reading hostile input
runs and imports nothing."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "pylog"
MODULES = {
    "pickle", "_pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "yaml", "jsonpickle", "runpy", "code",
    "codeop", "importlib", "pkgutil", "imp", "ctypes", "cffi", "subprocess", "multiprocessing", "pty", "webbrowser", "xmlrpc",
}  # fmt: skip
CALLS = {
    "eval",
    "exec",
    "compile",
    "__import__",
    "import_module",
    "system",
    "popen",
    "execv",
    "execve",
    "execvp",
    "spawnv",
    "posix_spawn",
}
ALLOWED = {
    ("__init__.py", "importlib"),  # public names, each from its own module by a constant name
    ("__init__.py", "import_module"),
    ("storage/descriptor_pool.py", "ctypes"),  # statx, which Python has no other way to
    ("storage/never_freed.py", "ctypes"),  # one more reference to an object: Py_IncRef, a constant name
    ("storage/os_exchange.py", "ctypes"),  # renameat2, which Python has no other way to
    ("codec/checksum.py", "importlib"),  # one library's extension, by a constant name
    (
        "storage/os_watch.py",
        "ctypes",
    ),  # inotify, which Python has no other way to: two functions of the C library by constant names
}
CASES = pytest.mark.parametrize(
    "source",
    [
        "import pickle", "from marshal import loads", "def f():\n    import yaml", "eval(text)", "builtins.exec(data)",
        "importlib.import_module(name)", "os.system(command)", "re.compile\n__import__(name)",
    ],
)  # fmt: skip


def ways_to_run_code(source: str) -> set[str]:
    """Modules and calls that could make code of data."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names} & MODULES
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module.partition(".")[0]} & MODULES
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            name = called.rpartition(".")[2]
            if name in CALLS and called != "re.compile":
                found.add(name)
    return found


@pytest.mark.parametrize("file", sorted(str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py")))
def test_no_file_of_the_package_can_make_code_of_data(file: str) -> None:
    found = {(file, way) for way in ways_to_run_code((PACKAGE / file).read_text())}
    assert found <= ALLOWED


@CASES
def test_a_way_to_run_code_would_be_found(source: str) -> None:
    assert ways_to_run_code(source)


def audited(tmp_path: Path, seed: int, count: int, before: str = "") -> dict[str, object]:
    paths = os.environ | {"PYTHONPATH": os.pathsep.join([path for path in sys.path if path] + [os.getcwd()])}
    script = (
        f"import sys\nfrom tests.fuzz import audit, engine\n{before}\n"
        f"with engine.quiet(): audit.main({seed}, {count}, sys.argv[1])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        env=paths,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, object] = json.loads(done.stdout)
    return answer


@pytest.mark.slow
@pytest.mark.processes
def test_hostile_input_imports_nothing_and_runs_nothing(tmpfs_dir: Path, seed: int) -> None:
    answer = audited(tmpfs_dir, seed, 100)
    assert answer["noted"] == {}
    assert answer["directories"] == 100


@pytest.mark.processes
@pytest.mark.parametrize(
    "doing", ["exec('1')", "__import__('colorsys')", "__import__('subprocess').Popen(['true']).wait()"]
)
def test_a_reader_that_ran_something_would_be_noted(tmpfs_dir: Path, doing: str) -> None:
    before = (
        "from tests.fuzz.targets import TARGETS\n"
        "right = set(TARGETS['slots'].seeds())\n"
        f"TARGETS['slots'] = TARGETS['slots']._replace(run=lambda data: data in right or {doing})"
    )
    assert audited(tmpfs_dir, 1, 0, before)["noted"]
