"""What a check of the source or of the documentation has found, told whole: pytest's own message
shows the first alone."""

from __future__ import annotations

from collections.abc import Iterable

import pytest


def expect_none(found: Iterable[object], remedy: str) -> None:
    """Fail with everything ``found``, a line each, and with the ``remedy``."""
    lines = [str(item) for item in found]
    if lines:
        pytest.fail("\n".join([*lines, remedy]), pytrace=False)
