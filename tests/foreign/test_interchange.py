"""What pylog writes, others read, and the other way round (``tests/data`` and the codec's own tests
have that way)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.foreign import interchange


@pytest.mark.parametrize("codec", interchange.CODECS)
def test_other_projects_read_what_pylog_wrote(codec: str, tmp_path: Path, seed: int) -> None:
    found = interchange.run(tmp_path / "log", codec, 1500, seed)
    assert found == {"pylog": [], "aiokafka": [], "kafka-python": []}
