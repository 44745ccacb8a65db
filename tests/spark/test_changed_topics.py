"""A stream of a topic that gets other partitions, or another name. Without Spark."""

from __future__ import annotations

import pytest

from pylog import Log, ProducerRecord
from pylog.errors import OffsetOutOfRange
from tests.spark.streaming import Query


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ("repartition", "or repartitioned, or this is another log: all its records count as new"),
        ("rename", "not there any"),
    ],
)
def test_the_query_fails_before_it_reads_records_again(
    log: Log, change: str, cause: str, *, is_restarted: bool
) -> None:
    log.create_topic("orders", partitions=2)
    values = [b"%d" % number for number in range(6)]
    for value in values:
        log.partition("orders", int(value) % 2).append([ProducerRecord(value, key=value)])
    strict = Query(log.path, subscribePattern=".*", startingOffsets="earliest")
    lenient = Query(log.path, subscribePattern=".*", startingOffsets="earliest", failOnDataLoss=False)
    for query in (strict, lenient):
        query.batch()
    if change == "repartition":
        log.repartition("orders", 3)
    else:
        log.rename_topic("orders", "orders-of-2013")
    for _ in range(2):  # not only once
        if is_restarted:
            strict.restart()
        with pytest.raises(OffsetOutOfRange, match=f"orders-0 from offset 3 on: .*{cause}.*; failOnDataLoss=false"):
            strict.batch()
    assert len(strict.rows) == len(values)
    if is_restarted:
        lenient.restart()
    lenient.batch()
    assert sorted(row["value"] for row in lenient.rows) == sorted(2 * values)
