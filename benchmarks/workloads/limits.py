"""What the machine itself does, beside which every other figure is to be read."""

from __future__ import annotations

from benchmarks.rivals import raw_file
from benchmarks.workload import Contender, Workload

MACHINE = Contender("the machine", "write(2) and read(2) of one file, a mebibyte at a time; memcpy", raw_file.bandwidth)

WORKLOADS = [
    Workload(
        "limits",
        "the machine: write(2), read(2) and memcpy a mebibyte at a time; write + fdatasync of 4 KiB",
        (
            MACHINE,
            Contender("write + fdatasync", "4 KiB at the end of a file", raw_file.synced_writes),
        ),
    )
]
