"""Methods, attributes, keywords and imports of Kafka's Python clients: here, or answered with what
to use."""

from __future__ import annotations

import copy
import inspect
import pickle
import re
import subprocess
import sys
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import Mock

import aiokafka
import aiokafka.structs
import kafka
import pytest
from kafka.consumer.fetcher import ConsumerRecord
from kafka.producer.future import FutureRecordMetadata
from kafka.producer.future import RecordMetadata as KafkaRecordMetadata

import pylog
from pylog import Consumer, ConsumerGroupMetadata, Delivery, Log, Partition, Producer, TopicPartition
from pylog.errors import ConfigError, InvalidTopicName
from pylog.kafka_names import ATTRIBUTES, KEYWORDS, MODULE
from pylog.model import OffsetAndMetadata, OffsetAndTimestamp, Record, RecordMetadata
from pylog.producer.deliveries import Deliveries

# confluent-kafka is not installed with the tests; these are the public names of its classes.
CONFLUENT = {
    Producer: (
        "abort_transaction begin_transaction close commit_transaction flush init_transactions list_topics poll produce "
        "produce_batch purge send_offsets_to_transaction set_sasl_credentials"
    ),
    Consumer: (
        "assign assignment close commit committed consume consumer_group_metadata get_watermark_offsets "
        "incremental_assign incremental_unassign list_topics memberid offsets_for_times pause poll position resume seek "
        "set_sasl_credentials store_offsets subscribe unassign unsubscribe"
    ),
    Record: (
        "error headers key latency leader_epoch offset partition set_headers set_key set_value timestamp topic value"
    ),
    TopicPartition: "error leader_epoch metadata offset partition topic",
    Log: (
        "alter_configs alter_consumer_group_offsets alter_user_scram_credentials create_acls create_partitions "
        "create_topics delete_acls delete_consumer_groups delete_records delete_topics describe_acls describe_cluster "
        "describe_configs describe_consumer_groups describe_topics describe_user_scram_credentials elect_leaders "
        "incremental_alter_configs list_consumer_group_offsets list_consumer_groups list_groups list_offsets "
        "list_topics poll set_sasl_credentials"
    ),
}
CONFLUENT_MODULE = (
    "Consumer ConsumerGroupMetadata DeserializingConsumer KafkaError KafkaException Message OFFSET_BEGINNING OFFSET_END "
    "OFFSET_INVALID OFFSET_STORED Producer SerializingProducer TIMESTAMP_CREATE_TIME TIMESTAMP_LOG_APPEND_TIME "
    "TIMESTAMP_NOT_AVAILABLE TopicPartition"
)
CLIENTS: list[tuple[type, type]] = [
    (kafka.KafkaProducer, Producer),
    (aiokafka.AIOKafkaProducer, Producer),
    (kafka.KafkaConsumer, Consumer),
    (aiokafka.AIOKafkaConsumer, Consumer),
    (kafka.KafkaAdminClient, Log),
    (FutureRecordMetadata, Delivery),
    (ConsumerRecord, Record),
    (aiokafka.ConsumerRecord, Record),
    (KafkaRecordMetadata, RecordMetadata),
    (aiokafka.structs.RecordMetadata, RecordMetadata),
    (kafka.TopicPartition, TopicPartition),
    (kafka.OffsetAndMetadata, OffsetAndMetadata),
    (aiokafka.OffsetAndTimestamp, OffsetAndTimestamp),
    (kafka.ConsumerGroupMetadata, ConsumerGroupMetadata),
]
NOT_FOR_USERS = {
    *("DEFAULT_CONFIG", "DEFAULT_SESSION_TIMEOUT_MS_PRE_KIP_735", "DEPRECATED_CONFIGS", "max_usable_produce_magic"),
}


class Theirs(NamedTuple):
    """A public name of a client's class, and the class here that stands for it."""

    client: str
    name: str
    ours: type


def theirs() -> Iterator[Theirs]:
    for client, ours in CLIENTS:
        fields = getattr(client, "__dataclass_fields__", ())
        names = {name for name in (*dir(client), *fields) if not name.startswith("_")} - NOT_FOR_USERS
        yield from (Theirs(f"{client.__module__.partition('.')[0]}.{client.__name__}", name, ours) for name in names)
    for ours, listed in CONFLUENT.items():
        yield from (Theirs(f"confluent_kafka's {ours.__name__}", name, ours) for name in listed.split())


@pytest.fixture
def log(log: Log) -> Log:
    log.create_topic("t")
    return log


@pytest.fixture
def examples(log: Log) -> Iterator[dict[str, Any]]:
    """One instance of each class of the table, by its name."""
    with Producer(log) as producer, Consumer(log) as consumer:
        delivery = producer.send("t", b"v")
        found = (
            producer, consumer, log, delivery, delivery.result(), log.partition("t", 0).read(0)[0],
            TopicPartition("t", 0), OffsetAndTimestamp(0, 0), OffsetAndMetadata(0),
            ConsumerGroupMetadata("g", 1, "m", None),
        )  # fmt: skip
        yield {type(example).__name__: example for example in found}


def test_each_public_name_of_the_clients_is_here_or_has_its_answer() -> None:
    found = [*theirs()]
    here = {ours: {*dir(ours)} for _, _, ours in found}
    assert [item for item in found if item.name not in here[item.ours] | {*ATTRIBUTES[item.ours.__name__]}] == []
    assert len(found) > 250


def test_each_name_that_is_imported_from_the_clients_is_here_or_has_its_answer() -> None:
    names = {*aiokafka.__all__, *kafka.__all__, *CONFLUENT_MODULE.split()}
    assert names - {*pylog.__all__} - {*MODULE} == set()


def test_each_keyword_of_their_methods_is_taken_or_has_its_answer() -> None:
    unanswered = []
    for client, ours in CLIENTS:
        for name in {*dir(client)} & {*dir(ours)}:
            theirs_, method = getattr(client, name), getattr(ours, name)
            if name.startswith("_") or not inspect.isfunction(theirs_):
                continue
            known = {*inspect.signature(method).parameters, *KEYWORDS.get(f"{ours.__name__}.{name}", ())}
            unanswered += [(client, name, word) for word in {*inspect.signature(theirs_).parameters} - known]
    assert [item for item in unanswered if item[2] != "offset_and_metadata"] == []


@pytest.mark.parametrize(("owner", "name"), [(owner, name) for owner in ATTRIBUTES for name in ATTRIBUTES[owner]])
def test_an_attribute_that_is_not_here_says_what_to_use(examples: dict[str, Any], owner: str, name: str) -> None:
    example = examples[owner]
    with pytest.raises(AttributeError) as caught:
        getattr(example, name)
    assert str(caught.value) == f"'{owner}' object has no attribute '{name}': {ATTRIBUTES[owner][name]}"
    assert not hasattr(example, name)
    assert not hasattr(type(example), name)
    assert name not in {*dir(example), *dir(type(example))}
    assert name not in {name for name, _ in [*inspect.getmembers(example), *inspect.getmembers(type(example))]}
    assert not hasattr(Mock(spec=type(example)), name)


@pytest.mark.parametrize("owner", ATTRIBUTES)
def test_what_nobody_has_is_pythons_own_error(examples: dict[str, Any], owner: str) -> None:
    example = examples[owner]
    for name in ("nonsense", "__deepcopy__", "_private"):
        with pytest.raises(AttributeError) as caught:
            getattr(example, name)
        assert str(caught.value) == f"'{owner}' object has no attribute '{name}'"
        assert (caught.value.name, caught.value.obj is example) == (name, True)
        assert getattr(example, name, None) is None


@pytest.mark.parametrize("owner", ["Record", "RecordMetadata", "TopicPartition", "OffsetAndMetadata"])
def test_values_are_copied_and_pickled_as_before(examples: dict[str, Any], owner: str) -> None:
    value = examples[owner]
    assert copy.copy(value) == copy.deepcopy(value) == value
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        again = pickle.loads(pickle.dumps(value, protocol))
        assert (type(again), again) == (type(value), value)


def test_a_subclass_may_have_what_the_class_has_not(log: Log) -> None:
    class Polled(Producer, ABC):
        def poll(self) -> int:
            return 7

        @abstractmethod
        def name(self) -> str: ...

    class Named(Polled):
        def name(self) -> str:
            return "a"

    producer: Any = Named(log)
    with producer:
        producer.list_topics = lambda: ["t"]
        assert (producer.poll(), producer.list_topics()) == (7, ["t"])
        assert {"poll", "name"} <= {*dir(producer)} & {*dir(Named)}
        assert "list_topics" in dir(producer)
        assert "produce" not in dir(producer)


CALLS = [(method, word) for method, words in KEYWORDS.items() for word in words]


@pytest.mark.parametrize(("method", "word"), CALLS)
def test_a_keyword_that_is_not_taken_says_what_to_use(examples: dict[str, Any], method: str, word: str) -> None:
    owner, _, name = method.partition(".")
    with pytest.raises(TypeError) as caught:
        getattr(examples[owner], name)(**{word: 1})
    advice = KEYWORDS[method][word]
    assert str(caught.value) == f"{method}() got an unexpected keyword argument '{word}': {advice}"


def public_methods() -> Iterator[Any]:
    for owner in (Log, Producer, Consumer, Partition, Delivery, Deliveries):
        for name, method in inspect.getmembers(owner, inspect.isfunction):
            if not name.startswith("_") and method.__module__.startswith("pylog."):  # not of a Sequence
                yield pytest.param(owner, name, id=f"{owner.__name__}.{name}")


@pytest.mark.parametrize(("owner", "name"), [*public_methods()])
def test_a_wrong_call_is_refused_with_the_name_that_is_public(owner: type, name: str) -> None:
    method = getattr(owner, name)
    parameters = inspect.signature(method).parameters.values()
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        wrong: tuple[Any, dict[str, int]] = ((), {"nonsense": 1})
    else:
        wrong = (range(9), {})
    for given, words in (wrong, ((None,), {"nonsense": 1})):
        if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters) and words:
            continue  # it answers itself: Consumer.poll, and those that take topic options
        with pytest.raises(TypeError) as caught:
            method(*given, **words)
        assert str(caught.value).startswith(f"{owner.__name__}.{name}() ")


def test_poll_names_a_keyword_that_nobody_has(log: Log) -> None:
    with Consumer(log) as consumer, pytest.raises(TypeError) as caught:
        consumer.poll(nonsense=1)
    assert str(caught.value) == "Consumer.poll() got an unexpected keyword argument 'nonsense'"


# The module


@pytest.mark.parametrize("name", MODULE)
def test_importing_a_name_of_theirs_says_what_to_use(name: str) -> None:
    with pytest.raises(ImportError) as caught:
        exec(f"from pylog import {name}")
    assert str(caught.value) == f"cannot import name '{name}' from 'pylog': {MODULE[name]}"
    with pytest.raises(AttributeError) as absent:
        getattr(pylog, name)
    assert str(absent.value) == f"module 'pylog' has no attribute '{name}': {MODULE[name]}"
    assert not hasattr(pylog, name)
    assert name not in dir(pylog)


def test_any_other_import_is_pythons_own() -> None:
    with pytest.raises(ImportError, match=r"cannot import name 'Konsumer' from 'pylog' \(/"):
        exec("from pylog import Konsumer")
    with pytest.raises(AttributeError, match=r"module 'pylog' has no attribute 'Konsumer'$") as caught:
        pylog.Konsumer  # type: ignore[attr-defined]  # noqa: B018
    assert (caught.value.name, caught.value.obj) == ("Konsumer", pylog)
    exec("from pylog import testing, errors\nfrom pylog import *")


# poll(1000)


def test_a_timeout_that_may_be_meant_in_milliseconds_is_warned_of_where_it_stands(log: Log) -> None:
    with Consumer(log, auto_offset_reset="earliest") as consumer, Producer(log) as producer:
        consumer.subscribe("t")
        producer.send_many("t", [b"v"] * 9)
        producer.flush()
        with pytest.warns(UserWarning, match=r"^poll\(1000\) waits up to 1000 seconds.* 1000 ms, poll\(1\)") as caught:
            consumer.poll(1000, max_records=1)
        assert caught[0].filename == __file__
        with pytest.warns(UserWarning, match=r"poll\(100\).* poll\(0.1\)"):
            consumer.poll(timeout=100, max_records=1)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for seconds in (0, 1, 99, 100.0, 3600.0, float("inf")):
                assert len(consumer.poll(seconds, max_records=1)) == 1


# What a type checker says

RIGHT = """
from pylog import Consumer, Log, Producer
log = Log("d", create=False, segment_bytes=1_048_576, retention_ms=-1)
log.create_topic("t", partitions=2, compression_type="lz4", max_message_bytes=500)
log.alter_topic("t", segment_ms=5)
with Producer(log, acks=1, linger_ms=0, compression="zstd", on_delivery=print) as producer:
    producer.send("t", b"v").result(1.0)
with Producer(log, transactional_id="x") as producer:
    producer.init_transactions()
    with producer.transaction():
        producer.send("t", b"v")
with Consumer(log, group_id="g", auto_offset_reset="earliest", value_deserializer=bytes.decode) as consumer:
    consumer.subscribe(["t"], on_revoked=print)
    print(consumer.poll(1.0, max_records=7)[0].timestamp_ms)
"""
WRONG = (
    'Consumer(log, group_idd="g")',
    "Consumer(log, group_idd=anything)",
    "Producer(log, batch_size=anything)",
    'Log("d", reed_only=anything)',
    'log.create_topic("t", retain=anything)',
    'log.create_topic("t", retention_ms="7")',
    'log.alter_topic("t", partitionss=anything)',
    "Consumer(log).poll(timeout_ms=1000)",
    "Consumer(log).commit(asynchronous=anything)",
    'Consumer(log).subscribe(pattern="t")',
    "Producer(log).produce",
    "Consumer(log).getmany",
    'Producer(log).send("t", b"v").get()',
    "Consumer(log).poll()[0].timestamp",
    "log.create_topics",
    "pylog.KafkaProducer",
)


@pytest.mark.processes
def test_a_type_checker_finds_each_misspelt_option_and_nothing_else(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    program = tmp_path / "program.py"
    begins = f"import pylog\nfrom typing import Any\nanything: Any = 1\n{RIGHT}\n"
    program.write_text(begins + "\n".join(WRONG) + "\n")
    source = Path(pylog.__file__).parents[1]
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", f"--cache-dir={tmp_path / 'cache'}", str(program)],
        env={"PATH": "", "MYPYPATH": str(source), "HOME": str(tmp_path)},
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    wrong = {int(line.split(":")[1]) for line in checked.stdout.splitlines() if line.startswith("program.py:")}
    first = begins.count("\n") + 1
    assert {*range(first, first + len(WRONG))} == wrong, checked.stdout + checked.stderr


def test_the_topic_options_of_type_checkers_are_those_of_the_config() -> None:
    from pylog.catalog.topic import TopicConfig, TopicOptions

    assert TopicOptions.__annotations__.keys() == TopicConfig.__annotations__.keys()
    assert str(TopicOptions.__annotations__["segment_bytes"]).count("int")


# Options, positional arguments, imports of errors

UNHINTED = re.compile(r"there are [a-z_]+, |did you mean ")


def test_each_option_of_kafka_python_and_aiokafka_is_here_or_has_its_answer(log: Log) -> None:
    for clients, call in (
        ((kafka.KafkaProducer, aiokafka.AIOKafkaProducer), partial(Producer, log)),
        ((kafka.KafkaConsumer, aiokafka.AIOKafkaConsumer), partial(Consumer, log)),
        ((kafka.KafkaAdminClient,), partial(Log, log.path)),
    ):
        options = {*clients[0].DEFAULT_CONFIG, *inspect.signature(clients[-1]).parameters} - {"topics", "configs"}
        known = inspect.signature(call.func).parameters
        for option in options - {*known}:
            with pytest.raises(ConfigError) as caught:
                call(**{option: 1})
            assert not UNHINTED.search(str(caught.value)), str(caught.value)


@pytest.mark.parametrize(
    ("call", "advice"),
    [
        (lambda log: log.create_topic("a", 3), "create_topic(name, partitions=n)"),
        (lambda log: log.alter_topic("t", {"segment.bytes": 7}), "alter_topic(name, segment_bytes=…)"),
        (lambda log: Consumer(log, "t"), "consumer.subscribe(topics)"),
        (lambda log: Producer(log, {"acks": 1}), "options are keywords"),
    ],
)
def test_a_positional_argument_that_is_a_keyword_here_says_so(
    log: Log, call: Callable[[Log], object], advice: str
) -> None:
    with pytest.raises(TypeError, match=r"^\w+\.\w+\(\) takes 2 positional arguments but 3 were given: ") as caught:
        call(log)
    assert advice in str(caught.value)
    assert log.topics() == ["t"]


def test_kafkas_options_of_a_topic_and_of_a_log_say_why_they_are_none(log: Log) -> None:
    with pytest.raises(ConfigError, match="no replicas"):
        log.create_topic("a", min_insync_replicas=2)  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match=r"no servers: Log\(directory\)"):
        Log(log.path, bootstrap_servers="localhost")  # type: ignore[call-arg]


def test_the_advice_for_alter_configs_can_be_followed(log: Log) -> None:
    with pytest.raises(AttributeError) as caught:
        log.alter_configs({})  # type: ignore[attr-defined]
    (option,) = re.findall(r"alter_topic\(name, (\w+)=…\)", str(caught.value))
    log.alter_topic("t", **{option: 1 << 20})


@pytest.mark.parametrize("name", MODULE)
def test_importing_a_name_of_theirs_from_the_errors_says_what_to_use(name: str) -> None:
    with pytest.raises(ImportError) as caught:
        exec(f"from pylog.errors import {name}")
    assert str(caught.value) == f"cannot import name '{name}' from 'pylog.errors': {MODULE[name]}"
    assert not hasattr(pylog.errors, name)


def test_errors_that_are_imported_from_the_package_are_found() -> None:
    for name in ("PylogError", "TopicNotFound"):
        with pytest.raises(ImportError, match=f"from 'pylog': use pylog.errors.{name}$"):
            exec(f"from pylog import {name}")
        assert not hasattr(pylog, name)
    with pytest.raises(ImportError, match=r"cannot import name 'Any2' from 'pylog.errors' \(/"):
        exec("from pylog.errors import Any2")


def test_each_error_that_the_advice_names_is_there() -> None:
    for advice in MODULE.values():
        for name in re.findall(r"pylog\.errors\.(\w+)", advice):
            assert hasattr(pylog.errors, name)


def test_a_pattern_in_a_list_is_named(log: Log) -> None:
    with Consumer(log) as consumer, pytest.raises(InvalidTopicName, match=r"subscribe\(re.compile\('\^t'\)\)"):
        consumer.subscribe(["t", "^t"])
