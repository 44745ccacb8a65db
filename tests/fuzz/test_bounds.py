"""A file of at most 1 MiB costs bounded memory and time, whatever it claims, wherever it stands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pylog.codec.compression import DEFAULT_DECOMPRESSED_LIMIT
from tests.fuzz.bounds import DECOMPRESSED, INPUTS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the peak of memory is read from /proc"),
]
MIB = 1 << 20
REFUSED_AT_SIGHT = {
    "zstd of 32 GiB", "zstd that says its size", "snappy that claims 4 GiB", "2**31 - 1 headers", "400,000 headers",
    "2**31 - 1 records", "a record that claims 2 GiB", "a record of 2 GiB", "a batch that claims 2 GiB", "zeros",
}  # fmt: skip
TORN = {"a batch that claims 2 GiB", "zeros"}  # at the end they may be an append cut short
READ = {"65,536 headers a record", "records of nothing"}  # right, and large


@pytest.mark.one_in(8)
def test_files_of_a_mebibyte_cost_bounded_memory_and_time(tmp_path: Path) -> None:
    paths = os.environ | {"PYTHONPATH": os.pathsep.join([path for path in sys.path if path] + [os.getcwd()])}
    command = [sys.executable, "-m", "tests.fuzz.bounds", str(tmp_path)]
    done = subprocess.run(command, env=paths, capture_output=True, text=True, check=False, timeout=290)
    assert done.returncode == 0, done.stderr
    measured = [json.loads(line) for line in done.stdout.splitlines()]
    assert {row["name"] for row in measured} == set(INPUTS)
    for row in measured:
        name, said = row["name"], row["said"]
        bound = 4 * MIB if name in REFUSED_AT_SIGHT else 64 * MIB
        if name in DECOMPRESSED:
            bound = DEFAULT_DECOMPRESSED_LIMIT * 9 // 8 + 16 * MIB  # an eighth is a buffer's room to grow
        assert row["grown_bytes"] <= bound, row
        assert row["seconds"] < 20, row  # a thousandth of it as a rule
        if name in DECOMPRESSED | REFUSED_AT_SIGHT - TORN and row["step"] == "verify":
            assert said != "0 problems", row
        if name in DECOMPRESSED | REFUSED_AT_SIGHT and row["step"].startswith("consume"):
            assert said.startswith(("nothing", "CorruptSegment")), row
        if name in READ and row["step"] == "consume":
            assert said == "records to the end", row
