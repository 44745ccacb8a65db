"""A file that gathers what is appended has, after a sync, the bytes of one that does not."""

from __future__ import annotations

import tempfile
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylog.partition.compact import gathered
from pylog.partition.compact.gathered import GatheredFile
from pylog.storage import OsFileSystem

step = st.one_of(
    st.tuples(st.just("append"), st.binary(max_size=12)),
    st.tuples(st.just("write"), st.integers(0, 40), st.binary(min_size=1, max_size=12)),
    st.tuples(st.just("truncate"), st.integers(0, 40)),
    st.tuples(st.just("read"), st.integers(0, 40), st.integers(0, 40)),
    st.tuples(st.just("sync")),
)


@pytest.mark.slow
@given(st.binary(max_size=5), st.lists(step, max_size=15))
def test_it_has_the_bytes_of_a_plain_file(begins_with: bytes, steps: list[tuple[str, ...]]) -> None:
    with tempfile.TemporaryDirectory() as root, patch.object(gathered, "_GATHERED_BYTES", 10):
        files = [OsFileSystem().open_appendable(f"{root}/{name}") for name in ("plain", "gathered")]
        for file in files:
            file.pwrite(begins_with, 0)
        plain, found = files[0], GatheredFile(files[1])
        for name, *arguments in [*steps, ("sync",)]:
            for file in (plain, found):
                if name == "append":
                    file.pwrite(arguments[0], file.size())
                elif name == "write":
                    file.pwrite(arguments[1], arguments[0])
                elif name == "truncate":
                    file.truncate(arguments[0])
                elif name == "sync":
                    file.sync()
            if name == "read":
                assert found.pread(*arguments) == plain.pread(*arguments)
            assert found.size() == plain.size()
        assert Path(root, "gathered").read_bytes() == Path(root, "plain").read_bytes()
        for file in files:
            file.close()


def test_small_appends_are_few_calls(tmp_path: Path) -> None:
    file = OsFileSystem().open_appendable(str(tmp_path / "file"))
    found, calls = GatheredFile(file), []
    with patch.object(type(file), "pwrite", lambda _, data, position: calls.append((len(data), position))):
        for _ in range(300):
            found.pwrite(b"x" * 10_000, found.size())
        found.sync()
    assert calls == [(1_050_000, 0), (1_050_000, 1_050_000), (900_000, 2_100_000)]
    file.close()


def test_its_descriptor_is_that_of_the_file_idle_and_closed_with_it(tmp_path: Path) -> None:
    file = OsFileSystem().open_appendable(str(tmp_path / "file"))
    found = GatheredFile(file)
    assert found.path == file.path == str(tmp_path / "file")
    with patch.object(type(file), "close_when_idle") as close_when_idle:
        found.close_when_idle()
    close_when_idle.assert_called_once_with()
    found.close()
