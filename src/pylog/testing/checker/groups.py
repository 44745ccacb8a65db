"""Anomalies of consumer groups: of the owners of partitions, and of committed offsets."""

from __future__ import annotations

from collections.abc import Iterator

from pylog.testing.checker.anomaly import Finding
from pylog.testing.checker.index import Index

CONTRADICTIONS = {
    # of an older generation, accepted after a newer one owned the partition
    "zombie-commit": "committed offset {}, which generation {} had by then",
    # the committed offset went back; without a generation it may do so: it is a reset
    "commit-regression": "committed offset {}, where {} was committed already",
    "commit-ahead": "committed offset {}, where no member had come further than {}",
    # a member was given a partition, and did not begin at what was committed
    "lost-commit": "began at offset {}, where {} was committed already",
    "aborted-commit": "began at offset {}, which only failed commits had",
}


def commits(index: Index, kind: str) -> Iterator[Finding]:
    """A commit was accepted, or a member began, against what the group had done before."""
    for commit in index.groups.wrong:
        if commit.kind == kind:
            what = CONTRADICTIONS[kind].format(commit.offset, commit.against)
            text = f"process {commit.process} of group {commit.group!r} {what}"
            yield Finding(text, commit.partition, commit.offset)


def group_overlap(index: Index) -> Iterator[Finding]:
    """Two members of one generation own a partition, or one gave it up after another had it."""
    for group, partition, generation, processes in index.groups.overlaps:
        text = f"processes {processes[0]} and {processes[1]} own it in generation {generation} of group {group!r}"
        yield Finding(text, partition)
