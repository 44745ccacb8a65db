"""The pytest plugin. Imports nothing of pylog before a test asks for a fixture."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pylog.log import Log


@pytest.fixture
def pylog_log(tmp_path: Path) -> Iterator[Log]:
    """A fresh, empty log below ``tmp_path``, opened as a program opens its own; closed when the test is over.

    Takes milliseconds. Topics are the test's to create. Other processes, and other ``Log`` objects, may open
    ``pylog_log.path`` at the same time.
    """
    from pylog.log import Log

    with Log(tmp_path / "pylog") as log:
        yield log
