"""The compiled record codec, where it can be built; everything else stands in setup.cfg.

The readable codec does the same, slower, so nothing that goes wrong here fails an installation: it prints one warning.
"""

import os
from importlib.util import find_spec

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

RECORDS = Extension("pylog.codec._records", ["src/pylog/codec/_records.pyx"], optional=True)


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


wanted = os.environ.get("PYLOG_PURE_PYTHON", "") in ("", "0")

setup(ext_modules=[RECORDS] if wanted else [], cmdclass={"build_ext": BuildOrDoWithout})
