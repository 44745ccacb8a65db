"""Anomalies of consumer groups: of the owners of partitions, and of committed offsets."""

from __future__ import annotations

from collections.abc import Iterator

from pylog.testing.checker.anomaly import Anomaly
from pylog.testing.checker.group_index import GroupIndex
from pylog.testing.checker.index import Index


def zombie_commit(index: Index) -> Iterator[Anomaly]:
    """A commit of an older generation was accepted after a newer one owned the partition."""
    yield from _wrong(index.groups, "zombie-commit", "which generation {} had by then")


def commit_regression(index: Index) -> Iterator[Anomaly]:
    """A committed offset went back. (A commit without a generation may do so: it is a reset.)"""
    yield from _wrong(index.groups, "commit-regression", "where {} was committed already")


def commit_ahead(index: Index) -> Iterator[Anomaly]:
    """An offset was committed that no member had reached."""
    yield from _wrong(index.groups, "commit-ahead", "where no member had come further than {}")


def group_overlap(index: Index) -> Iterator[Anomaly]:
    """Two members of one generation own a partition, or one gave it up after another had it."""
    for group, partition, generation, processes in index.groups.overlaps:
        text = f"processes {processes[0]} and {processes[1]} own it in generation {generation} of group {group!r}"
        yield Anomaly("group-overlap", text, partition)


def _wrong(groups: GroupIndex, kind: str, against: str) -> Iterator[Anomaly]:
    for commit in groups.wrong:
        if commit.kind == kind:
            text = f"process {commit.process} of group {commit.group!r} committed offset {commit.offset}, "
            yield Anomaly(kind, text + against.format(commit.against), commit.partition, commit.offset)
