"""All hand-made bugs, in the order of the tables."""

from __future__ import annotations

from tests.mutants.mutant import Mutant
from tests.mutants.table import (
    access,
    compaction,
    durability,
    erasing,
    groups,
    producers,
    reading,
    recovery,
    sharing,
    spark,
    transactions,
)

TABLES = (
    access, compaction, durability, erasing, groups, producers, reading, recovery, sharing, spark, transactions,
)  # fmt: skip
MUTANTS: tuple[Mutant, ...] = tuple(mutant for table in TABLES for mutant in table.MUTANTS)
