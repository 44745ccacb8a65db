"""CRC-32C from the compiled part of the ``crc32c`` library.

The library's ``__init__`` imports ``importlib.metadata`` for a version string, which takes about as
long as importing pylog. So the extension is loaded directly, or by ``__init__`` if it is not found.
"""

from __future__ import annotations

from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import TYPE_CHECKING, Any


def _extension() -> Any:
    package = find_spec("crc32c")
    if package is not None and package.submodule_search_locations:
        spec = PathFinder.find_spec("crc32c._crc32c", package.submodule_search_locations)
        if spec is not None and spec.loader is not None:
            module = module_from_spec(spec)
            spec.loader.exec_module(module)
            return module
    import crc32c

    return crc32c


if TYPE_CHECKING:

    def crc32c(data: bytes | bytearray | memoryview, value: int = 0) -> int:
        """The CRC-32C of ``data``, continuing from ``value``."""
else:
    crc32c = _extension().crc32c
