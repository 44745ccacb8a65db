"""``pylog transactions list``, ``describe`` and ``abort``"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pylog.errors import InvalidTransactionState, TransactionAborted, TransactionNotFound
from pylog.log import Log
from pylog.model import TopicPartition
from pylog.producer import Producer
from tests.cli.conftest import Run
from tests.transaction import from_kafka


@pytest.fixture
def owner(log: Log) -> Iterator[Producer]:
    """In a transaction that has one record in each of two topics."""
    log.create_topic("orders")
    log.create_topic("totals")
    with Producer(log, transactional_id="billing 1") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        for topic in ("orders", "totals"):
            producer.send(topic, b"value")
        producer.flush()
        yield producer


def test_list_names_every_id_and_where_its_records_wait(pylog: Run, owner: Producer) -> None:
    titles, row = pylog("transactions", "list").lines
    assert titles.split() == [
        "TRANSACTIONAL-ID",
        "PRODUCER-ID",
        "EPOCH",
        "STATE",
        "OWNER",
        "TIMEOUT-MS",
        "IDLE-MS",
        "OPEN-IN",
    ]
    assert row.startswith("billing 1 ")
    assert row.endswith("orders-0@0, totals-0@0")
    assert row.split()[3:7] == ["1", "Ongoing", "alive", "60000"]
    owner.commit_transaction()
    _, row = pylog("transactions", "list").lines
    assert row.split()[4:6] == ["CompleteCommit", "alive"]
    assert row.split()[-1] == "-"


def test_a_log_without_transactions_has_none_to_list(pylog: Run, log: Log) -> None:
    assert pylog("transactions", "list") == (0, "", "")
    assert pylog("transactions", "list", "--json") == (0, "", "")


def test_describe_as_json_has_every_field(pylog: Run, owner: Producer) -> None:
    (described,) = pylog("transactions", "describe", "billing 1", "--json").objects
    assert described.pop("producer_id") >= 1 << 40
    assert described.pop("idle_ms") >= 0
    assert described == {
        "transactional_id": "billing 1",
        "epoch": 1,
        "state": "Ongoing",
        "has_owner": True,
        "transaction_timeout_ms": 60_000,
        "open_in": [
            {"topic": "orders", "partition": 0, "first_offset": 0},
            {"topic": "totals", "partition": 0, "first_offset": 0},
        ],
    }


def test_abort_ends_the_transaction_of_a_live_owner_everywhere(pylog: Run, log: Log, owner: Producer) -> None:
    assert pylog("transactions", "abort", "billing 1") == (0, "billing 1 aborted\n", "")
    described = log.describe_transaction("billing 1")
    assert (described.state, described.open_in) == ("PrepareAbort", {})
    with pytest.raises(TransactionAborted):
        owner.commit_transaction()
    owner.abort_transaction()
    with owner.transaction():
        owner.send("orders", b"another")
    seen = log.partition("orders", 0).read(0, max_records=10, isolation_level="read_committed")
    assert [record.value for record in seen] == [b"another"]


def test_abort_needs_an_ongoing_transaction(pylog: Run, log: Log, owner: Producer) -> None:
    owner.commit_transaction()
    with pytest.raises(InvalidTransactionState, match="its state is CompleteCommit"):
        log.abort_transaction("billing 1")
    code, out, err = pylog("transactions", "abort", "billing 1")
    assert (code, out) == (1, "")
    assert "no transaction of 'billing 1' is ongoing" in err


def test_an_unknown_id_is_not_found(pylog: Run, log: Log) -> None:
    for verb in ("describe", "abort"):
        code, out, err = pylog("transactions", verb, "nobody")
        assert (code, out) == (3, "")
        assert "no producer of" in err
        assert "transactional_id='nobody'" in err
    with pytest.raises(TransactionNotFound):
        log.describe_transaction("nobody")


def test_a_dead_owner_is_gone_and_its_transaction_stays_listed_until_somebody_ends_it(
    pylog: Run, log: Log, owner: Producer
) -> None:
    transactions = owner._transactions
    assert transactions is not None
    assert transactions._owner is not None
    transactions._owner.close()  # the lock that the kernel frees at a death
    described = log.describe_transaction("billing 1")
    assert (described.state, described.has_owner) == ("Ongoing", False)
    assert described.open_in == {TopicPartition("orders", 0): 0, TopicPartition("totals", 0): 0}
    transactions.forget_parent()


# By an offset


def test_describe_of_a_topic_shows_its_open_transactions(pylog: Run, log: Log, owner: Producer) -> None:
    (line,) = [line for line in pylog("topics", "describe", "orders").lines if "open transaction" in line]
    assert re.fullmatch(r"  1 open transaction, the oldest: orders-0@0, billing 1, owner alive, \d+\.\d s old", line)
    (described,) = pylog("topics", "describe", "orders", "--json").objects
    (found,) = described["open_transactions"]
    assert found.pop("age_ms") >= 0
    assert found.pop("producer_id") >= 1 << 40
    assert found == {
        "partition": 0, "first_offset": 0, "epoch": 1, "transactional_id": "billing 1", "has_owner": True,
    }  # fmt: skip
    owner.commit_transaction()
    assert not any("open transaction" in line for line in pylog("topics", "describe", "orders").lines)
    assert pylog("topics", "describe", "orders", "--json").objects[0]["open_transactions"] == []


def test_a_topic_is_described_though_its_open_transactions_cannot_be_read(
    pylog: Run, log_dir: Path, owner: Producer
) -> None:
    (table,) = (log_dir / "__transaction_state-0").glob("*.log")
    table.write_bytes(bytes(table.stat().st_size))
    code, out, err = pylog("topics", "describe", "orders", "--json")
    assert (code, json.loads(out)["open_transactions"]) == (5, None)
    assert err.startswith("pylog: error: the open transactions of orders are not known: ")
    owner._transactions.forget_parent()  # type: ignore[union-attr] # its end could not be recorded


def test_verify_counts_open_transactions_and_notes_those_of_dead_producers(pylog: Run, owner: Producer) -> None:
    ran = pylog("verify")
    assert ran.code == 0
    assert [line for line in ran.lines if "transaction" in line] == ["2 open transactions: no damage"]
    transactions = owner._transactions
    assert transactions is not None
    assert transactions._owner is not None
    transactions._owner.close()
    ran = pylog("verify", "orders")
    assert ran.code == 0
    first, second, _ = ran.lines
    assert first == "1 open transaction: no damage"
    assert re.fullmatch(
        r"note: orders-0: a transaction is open from offset 0 on, of .* 'billing 1', which is gone: .*", second
    )
    (summary,) = pylog("verify", "--json").objects
    assert (summary["problems"], summary["open_transactions"], len(summary["notes"])) == (0, 2, 2)
    transactions.forget_parent()


def test_abort_by_topic_partition_and_start_offset(pylog: Run, log: Log, owner: Producer) -> None:
    where = ("--topic", "orders", "--partition", "0", "--start-offset")
    code, out, err = pylog("transactions", "abort", *where, "3")
    assert (code, out) == (1, "")
    assert "no transaction that began at offset 3 of orders-0 is open; open there: [0]" in err
    ran = pylog("transactions", "abort", *where, "0")
    assert ran == (0, "the transaction of billing 1 from orders-0@0 on aborted\n", "")
    assert log.open_transactions() == []
    owner.abort_transaction()


def test_abort_of_a_transaction_that_kafka_left_open(pylog: Run, log_dir: Path) -> None:
    from_kafka.take_files(log_dir, [from_kafka.OPEN_TOPIC])
    (line,) = [line for line in pylog("topics", "describe", from_kafka.OPEN_TOPIC).lines if "open transaction" in line]
    assert re.search(r"the oldest: transactions-open-0@5, producer 1013, owner gone, \d+\.\d d old$", line)
    (note,) = [line for line in pylog("verify").lines if line.startswith("note: transactions-open")]
    command = note.partition(" until pylog ")[2].split()
    (aborted,) = pylog(*command, "--json").objects
    assert aborted == {
        "transactional_id": None, "aborted": True, "topic": from_kafka.OPEN_TOPIC, "partition": 0, "first_offset": 5,
        "producer_id": 1013,
    }  # fmt: skip
    assert pylog("topics", "describe", from_kafka.OPEN_TOPIC, "--json").objects[0]["open_transactions"] == []
    values = pylog(
        "consume", from_kafka.OPEN_TOPIC, "--from-beginning", "--isolation-level", "read_committed", "--json"
    )
    assert [item["offset"] for item in values.objects] == [0, 1, 2, 3, 7, 8, 14, 15]


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--topic", "t"),
        ("id", "--topic", "t"),
        ("id", "--start-offset", "5"),
        ("--partition", "0", "--start-offset", "0"),
    ],
)
def test_abort_needs_an_id_or_a_place(pylog: Run, log: Log, arguments: tuple[str, ...]) -> None:
    code, out, err = pylog("transactions", "abort", *arguments)
    assert (code, out) == (2, "")
    assert "name the transactional id, or --topic, --partition and --start-offset together" in err
