"""Of damaged segments both readers return the same rows, or an error of the same kind. See
jvm/mutants.py."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.spark.jvm.mutants import targets, try_mutants
from tests.spark.jvm.verdicts import JavaReader

MUTANTS = 3_000


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logger = logging.getLogger("pylog")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(before)


@pytest.mark.one_in(8)
def test_both_readers_agree(java: JavaReader, tmpfs_dir: Path) -> None:
    seed = Random().randrange(2**32)
    print(f"seed {seed}")
    chance = Random(seed)
    tried = try_mutants(java, targets(tmpfs_dir, chance, 10), chance, MUTANTS, math.inf)
    assert not tried.different, "\n".join(tried.different)
    assert set(tried.kinds) <= {"rows", "totals", "corrupt", "unsupported", "unplanned"}
    assert min(tried.kinds["rows"], tried.kinds["totals"], tried.kinds["corrupt"]) > MUTANTS // 20
