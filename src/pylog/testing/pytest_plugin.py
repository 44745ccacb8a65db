"""The pytest plugin. It imports pylog only when a test uses a fixture."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pylog.log import Log


@pytest.fixture
def pylog_log(tmp_path: Path) -> Iterator[Log]:
    """An open, empty log below ``tmp_path`` without topics. It is closed after the test.

    Takes milliseconds. The options are the defaults of ``Log``. Other processes and other ``Log``
    objects may open ``pylog_log.path`` at the same time.
    """
    from pylog.log import Log

    with Log(tmp_path / "pylog") as log:
        yield log
