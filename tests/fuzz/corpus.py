"""The inputs that are kept: ``corpus/<target>/<name>``. Those found to break something bear a name
that says what."""

from __future__ import annotations

import hashlib
from pathlib import Path

from tests.fuzz.targets import TARGETS

CORPUS = Path(__file__).parent / "corpus"
KEPT_BYTES_MAX = 700  # what is longer is not worth its place in the tree


def kept(target: str) -> list[Path]:
    return sorted(path for path in (CORPUS / target).glob("*") if path.is_file())


def pool_of(target: str) -> list[bytes]:
    """The right inputs and the kept ones, the same on every machine."""
    return [*map(bytes, TARGETS[target].seeds()), *(path.read_bytes() for path in kept(target))]


def keep(target: str, data: bytes) -> Path:
    """Put an input into the corpus."""
    return write(CORPUS, target, data)


def write(directory: Path, target: str, data: bytes) -> Path:
    path = directory / target / hashlib.sha256(data).hexdigest()[:12]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path
