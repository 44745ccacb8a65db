"""Objects of a C library that must not be freed in a forked child: what they would wait for is not
there."""

from __future__ import annotations

from ctypes import py_object, pythonapi


def never_free(found: object) -> None:
    """Keep it for as long as the process lives: a reference of a module ends with the
    interpreter."""
    pythonapi.Py_IncRef(py_object(found))
