"""Measures which lines of the compiled codec, ``_records.pyx`` and its parts, the tests run:
``scripts/coverage --native``.

The codec is built with gcov's counters in a copy of the source, so the tree keeps its own build.
Lines that hold no statement, or that only a failing allocation reaches, count as others do.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PROJECT = Path(__file__).parents[1]
CODEC = Path("src", "pylog", "codec", "_records.pyx")
FLAGS = ["-O0", "--coverage"]
TESTS = ["tests/codec", "tests/arrow"]


def build(copy: Path) -> Path:
    """The copy's codec, built with counters; the file that they are written to when a process
    ends."""
    from Cython.Build import cythonize
    from setuptools import Extension, setup

    os.chdir(copy)
    extension = Extension(
        "pylog.codec._records", [str(CODEC)], extra_compile_args=FLAGS, extra_link_args=["--coverage"]
    )
    modules = cythonize([extension], emit_linenums=True, quiet=True)
    setup(name="codec", ext_modules=modules, package_dir={"": "src"}, script_args=["-q", "build_ext", "--inplace"])
    (notes,) = copy.rglob("*.gcno")
    return notes.with_suffix(".gcda")


def lines_run(counters: Path, sources: dict[str, list[str]]) -> dict[tuple[str, int], bool]:
    """For each line with code, whether it was run. What Cython appends after the last line is not
    of the codec."""
    told = subprocess.run(
        ["gcov", "--json-format", "--stdout", counters.name], cwd=counters.parent, capture_output=True, check=True
    )
    run: dict[tuple[str, int], bool] = {}
    for file in json.loads(told.stdout.splitlines()[0])["files"]:
        name = Path(file["file"]).name
        for line in file["lines"] if name in sources else ():
            number = line["line_number"]
            if number <= len(sources[name]):
                run[name, number] = run.get((name, number), False) or line["count"] > 0
    return run


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="pylog-native-") as directory:
        copy = Path(directory)
        for name in ("src", "tests"):
            ignored = shutil.ignore_patterns("*.so", "*.c", "__pycache__")
            shutil.copytree(PROJECT / name, copy / name, ignore=ignored)
        shutil.copy(PROJECT / "setup.cfg", copy)
        counters = build(copy)
        chosen = ["-m", "not (slow and one_in) and not soak", *TESTS]
        tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *chosen]
        environment = {**os.environ, "PYTHONPATH": str(copy / "src"), "PYLOG_PURE_PYTHON": "0"}
        failed = subprocess.run(tests, check=False, cwd=copy, env=environment).returncode
        parts = [copy / CODEC, *(copy / CODEC).parent.glob("*.pxi")]
        sources = {path.name: path.read_text().splitlines() for path in parts}
        run = lines_run(counters, sources)
    for name, number in sorted(line for line, hit in run.items() if not hit):
        print(f"{CODEC.with_name(name)}:{number}: {sources[name][number - 1].strip()}")
    print(f"{sum(run.values())} of {len(run)} lines, {100 * sum(run.values()) / len(run):.1f} %")
    return failed


if __name__ == "__main__":
    sys.exit(main())
