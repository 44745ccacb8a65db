"""Checks every file of a partition directory, reports what is wrong, and continues after damage.
Reads only.

    partition.py     the partition: segment after segment, published state, small files
    segment.py       one segment: batches, seal      indexes.py   the three indexes
    times.py         the times in seals and slots    findings.py  what is wrong
    history.py       producers and epochs of the batches, against snapshots and checkpoint
    producer_ids.py  whether producer ids will be given out again

Of every batch: framing, checksum, decompression, every record, its offset against the one before
(also from segment to segment), its leader epoch against the checkpoint. Of closed segments also the
seal. Needs no lock: of the active segment it checks what was published when it began.
"""

from pylog.partition.verify.findings import UNCHECKED, Problem, VerifyReport
from pylog.partition.verify.partition import verify_partition
from pylog.partition.verify.producer_ids import ProducerIdCheck, ProducerIdRange

__all__ = ["UNCHECKED", "Problem", "ProducerIdCheck", "ProducerIdRange", "VerifyReport", "verify_partition"]
