"""CRC-32C, from the ``crc32c`` library's compiled part.

The library's own ``__init__`` imports ``importlib.metadata`` for a version string, which costs about as much as all of pylog.
So its extension is loaded by itself, and the ordinary way only where it is not found like that.
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
