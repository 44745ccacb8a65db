"""All hand-made bugs, in the order of the tables."""

from __future__ import annotations

from tests.mutants.mutant import Mutant
from tests.mutants.table import (
    access,
    durability,
    groups,
    names,
    producers,
    reading,
    recovery,
    sharing,
    sinks,
    streams,
    topics,
)

MUTANTS: tuple[Mutant, ...] = (
    *access.MUTANTS,
    *durability.MUTANTS,
    *groups.MUTANTS,
    *names.MUTANTS,
    *producers.MUTANTS,
    *reading.MUTANTS,
    *recovery.MUTANTS,
    *sharing.MUTANTS,
    *sinks.MUTANTS,
    *streams.MUTANTS,
    *topics.MUTANTS,
)
