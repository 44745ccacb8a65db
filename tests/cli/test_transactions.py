"""``pylog transactions list``, ``describe`` and ``abort``"""

from __future__ import annotations

from collections.abc import Iterator
from shutil import rmtree

import pytest

from pylog.errors import InvalidTransactionState, TransactionAborted, TransactionNotFound
from pylog.log import Log
from pylog.model import TopicPartition
from pylog.producer import Producer
from tests.cli.conftest import Run


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


def test_abort_says_that_nothing_is_ongoing_after_the_power_took_the_state(log: Log, owner: Producer) -> None:
    """It raised the system's own FileNotFoundError."""
    rmtree(log.path / ".pylog" / "transactions")
    with pytest.raises(InvalidTransactionState, match="unknown since the machine was booted"):
        log.abort_transaction("billing 1")
