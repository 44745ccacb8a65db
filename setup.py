"""The compiled record codec and the Java reader, where they can be built; everything else stands in
setup.cfg.

The readable codec, and the reader in Python, do the same, slower, so nothing that can't be built
fails an installation: it prints one warning. A jar that is there, but of other sources, does.
"""

import os
import runpy
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.errors import SetupError

CODEC = Path("src/pylog/codec")
PARTS = sorted(map(str, CODEC.glob("*.pxi")))  # what _records.pyx includes
RECORDS = Extension("pylog.codec._records", [str(CODEC / "_records.pyx")], depends=PARTS, optional=True)


class BuildOrDoWithout(build_ext):
    """Any failure (no Cython, no compiler, no headers) leaves a pure-Python installation."""

    def run(self) -> None:
        try:
            super().run()
        except Exception as error:  # noqa: BLE001 - no compiler for this platform: found out before the first extension
            self._do_without(error)

    def build_extension(self, extension: Extension) -> None:
        try:
            super().build_extension(extension)
        except Exception as error:  # noqa: BLE001 - Cython, the compiler and the linker each raise their own
            self._do_without(error)

    def _do_without(self, error: Exception) -> None:
        reason = error if find_spec("Cython") else "Cython is not installed"
        self.warn(f"pylog's compiled codec was not built ({reason}); the slower pure-Python one is used instead")


class BuildJar(build_py):
    """Without a JDK or pyspark, as in pip's own build environments, a jar that scripts/jvm has made
    before is taken."""

    def run(self) -> None:
        if find_spec("pyspark"):
            done = subprocess.run([sys.executable, "scripts/jvm"], stderr=subprocess.PIPE, text=True, check=False)
            if done.returncode:
                self.warn(f"the jar of the Java reader was not built: {done.stderr.strip()}")
        self._check_jar()
        super().run()

    def _check_jar(self) -> None:
        jvm = runpy.run_path("scripts/jvm")
        if not jvm["JAR"].exists():
            self.warn(
                'there is no jar, so format("pylog-jvm") is left out: scripts/jvm makes it, with a JDK and pyspark'
            )
        elif not jvm["is_current"](jvm["JAR"]):
            raise SetupError(f"{jvm['JAR']} is of other sources: make it again with scripts/jvm, or delete it")


wanted = os.environ.get("PYLOG_PURE_PYTHON", "") in ("", "0")

setup(ext_modules=[RECORDS] if wanted else [], cmdclass={"build_ext": BuildOrDoWithout, "build_py": BuildJar})
