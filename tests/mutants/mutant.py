"""One bug put into the library on purpose: an edit of one place, what it breaks, and the tests that
should notice.

Imports nothing of pylog: the process that tries mutants must not have loaded the library that it is
going to change.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(__file__).parents[2] / "src" / "pylog"


class Stale(Exception):
    """The source has changed, and the edit no longer says what to change."""


class Mutant(NamedTuple):
    """``old``, which stands exactly once in ``file`` (below src/pylog), becomes ``new``.

    ``caught_by`` are pytest's node ids or files, and ``-k`` or ``-m`` with an expression: the
    narrower, the sooner it is known.
    """

    name: str
    file: str
    old: str
    new: str
    breaks: str
    caught_by: tuple[str, ...]

    def source(self) -> str:
        """The file with the bug in it. ``Stale`` where the text to change is not there once."""
        text = (PACKAGE / self.file).read_text()
        found = text.count(self.old)
        if found != 1:
            raise Stale(
                f"mutant {self.name!r}: its old text stands {found} times in src/pylog/{self.file}, expected once. Look for "
                f"the place that is to break like this: {self.breaks}; and write its text into {self.name!r}:\n{self.old}"
            )
        return text.replace(self.old, self.new)


def put_copy(target: Path, file: str, source: str) -> None:
    """A copy of the package below ``target`` in which one file has this source. Only the readable
    codec is in it."""
    being_written = "*.pyc.*"  # by another process of this moment, which then gives it its name
    shutil.copytree(PACKAGE, target / "pylog", ignore=shutil.ignore_patterns("*.so", "*.c", "*.pyd", being_written))
    if file:
        changed = target / "pylog" / file
        changed.write_text(source)
        for compiled in changed.parent.glob(f"__pycache__/{changed.stem}.*.pyc"):
            compiled.unlink()  # it may seem to be of this source, where that is as long and as old to the second
