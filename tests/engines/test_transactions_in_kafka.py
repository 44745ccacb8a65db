"""pylog's transactions, served by a real Kafka broker and read by Kafka's own consumer and tools.

Run by ``scripts/test --engines``.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pylog import Log
from pylog.checks import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from tests.engines.broker import Broker
from tests.transaction.story import GROUP, Story, commit_abort_commit, story
from tests.transaction.views import TOPIC

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

LEVELS = ["read_committed", "read_uncommitted"]


@pytest.fixture(scope="module")
def it(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """A transaction is under way when Kafka gets the files."""
    with Log(tmp_path_factory.mktemp("story") / "log") as log:
        log.create_topic(TOPIC)
        with story(log, ("one", "two", "three")) as it:
            commit_abort_commit(it)
            it.begin("three")
            it.send("three", "open")
            it.plain("after")
            yield it


@pytest.fixture(scope="module")
def broker(it: Story, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    broker = Broker(tmp_path_factory.mktemp("broker"))
    try:
        broker.serve(it.log.path, {TOPIC: 1, OFFSETS_TOPIC: 1, TRANSACTIONS_TOPIC: 1})
        yield broker
    finally:
        broker.stop()


def read_from_every_offset(broker: Broker, level: str) -> tuple[list[tuple[int, int, str]], int]:
    """Starting offset, offset and value of each record that Kafka's consumer reads; and the end
    that it may reach."""
    lines = broker.run("ReadFrom", broker.address, TOPIC, level)
    rows = [line.split(" ") for line in lines[:-1]]
    return [(int(row[0]), int(row[1]), bytes.fromhex(row[2]).decode()) for row in rows], int(lines[-1].split()[1])


def expected(it: Story, level: str, end: int) -> list[tuple[int, int, str]]:
    return [(start, *row) for start in range(end + 1) for row in it.rows(level) if row[0] >= start]


@pytest.mark.parametrize("level", LEVELS)
def test_kafka_s_consumer_reads_the_same_from_every_starting_offset(broker: Broker, it: Story, level: str) -> None:
    found, end = read_from_every_offset(broker, level)
    partition = it.log.partition(TOPIC, 0)
    if level == "read_committed":
        assert end == partition.last_stable_offset
    else:
        assert end >= partition.latest_offset  # the coordinator repeats markers
    assert found == expected(it, level, end)


def test_kafka_knows_what_the_group_has_committed_in_transactions(broker: Broker, it: Story) -> None:
    assert broker.committed(GROUP, TOPIC) == it.committed_offsets[-1]


def transactions_tool(broker: Broker, *command: str) -> list[list[str]]:
    """The cells of the rows that ``kafka-transactions.sh`` prints."""
    tool = "org.apache.kafka.tools.TransactionsCommand"
    lines = broker.run(tool, "--bootstrap-server", broker.address, *command)
    return [line.split() for line in lines if line.strip()]


def test_kafka_s_coordinator_takes_the_table_over_and_its_tool_aborts_what_is_open(broker: Broker, it: Story) -> None:
    """It completes the commits that the table has, and knows nothing of the transaction under
    way."""
    listed = {row[0]: row for row in transactions_tool(broker, "list")[1:]}
    assert {name: int(row[2]) for name, row in listed.items()} == {name: it.identity(name)[0] for name in it.producers}
    assert {name: row[3] for name, row in listed.items()} == {
        "one": "CompleteCommit", "two": "CompleteCommit", "three": "Empty",
    }  # fmt: skip
    titles, *rows = transactions_tool(broker, "describe-producers", "--topic", TOPIC, "--partition", "0")
    starts = {int(row[0]): row[titles.index("CurrentTransactionStartOffset")] for row in rows}
    (first_offset,) = [each.base_offset for each in it.batches if each.values == ("open",)]
    assert starts == {it.identity(name)[0]: "None" for name in ("one", "two")} | {
        it.identity("three")[0]: str(first_offset)
    }
    where = ("--topic", TOPIC, "--partition", "0", "--start-offset", str(first_offset))
    transactions_tool(broker, "abort", *where)
    found, _ = read_from_every_offset(broker, "read_committed")
    assert [value for start, _, value in found if start == 0] == [*it.visible(0, "read_committed"), "after"]
