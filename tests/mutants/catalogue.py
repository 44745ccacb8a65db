"""All hand-made bugs, in the order of the tables."""

from __future__ import annotations

from tests.mutants.mutant import Mutant
from tests.mutants.table import durability, groups, names, producers, reading, recovery, sharing, sinks, streams

MUTANTS: tuple[Mutant, ...] = (
    *durability.MUTANTS,
    *sharing.MUTANTS,
    *recovery.MUTANTS,
    *reading.MUTANTS,
    *producers.MUTANTS,
    *groups.MUTANTS,
    *sinks.MUTANTS,
    *streams.MUTANTS,
    *names.MUTANTS,
)
