"""Other names in Kafka's Python clients: methods, attributes and keywords, and what to use here.

Only options of a producer, a consumer and a topic have tables elsewhere, beside the options. Each
entry ends a sentence: ``'Producer' object has no attribute 'produce': use send(topic, value,
key=key)``.
"""

from __future__ import annotations

import sys
from abc import ABCMeta
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from opcode import opmap
from typing import Any, NoReturn, TypeVar

_Class = TypeVar("_Class", bound=type)

NO_SERVER = "there is no server to connect to: a log is a directory"
_NO_NETWORK = "nothing waits for a server here, so there is no timeout; leave it out"
NO_USERS = "there are no users or passwords: the permissions of the directory decide who reads and writes"
NO_REPLICAS = "there are no replicas and no brokers: a log is a directory of one machine"
_NOT_KEPT = "it is not kept with a record"
_SIZE = "use len() of the key or the value"
_START = "a producer or consumer is ready when it is made; end it with close()"
_ALTER = "use alter_topic(name, segment_bytes=…): the fields of TopicConfig are keywords"


def _each(names: str, advice: str) -> dict[str, str]:
    """The same advice for several names."""
    return dict.fromkeys(names.split(), advice)


ATTRIBUTES: Mapping[str, Mapping[str, str]] = {
    "Producer": {
        "produce": "use send(topic, value, key=key)",
        "produce_batch": "use send_many(topic, values, keys=keys)",
        "send_and_wait": "use send(…).result(), or await send(…)",
        **_each(
            "send_batch create_batch",
            "use send_many(topic, values), or Partition.append(records) for one batch, all or none",
        ),
        "poll": "nothing needs to be polled: callbacks run when a record's outcome is known; remove the call",
        "purge": "records that were sent cannot be taken back; close(timeout) gives up what is not written in time",
        "list_topics": "use Log.topics()",
        **_each("bootstrap_connected client", NO_SERVER),
        "start": _START,
        "stop": "use close()",
        "set_sasl_credentials": NO_USERS,
    },
    "Consumer": {
        "consume": "use poll(timeout, max_records=n), in seconds; it returns a list of records",
        "getmany": "use poll(timeout), in seconds; it returns a list of records",
        "getone": "use poll(timeout, max_records=1), in seconds; it returns a list of at most one record",
        "list_topics": "use topics(), or Log.topics()",
        "seek_to_committed": "use seek(partition, committed(partition))",
        "store_offsets": "there is no store of offsets: use commit(offsets), or enable_auto_commit",
        "consumer_group_metadata": "use group_metadata()",
        "memberid": "use group_metadata().member_id",
        "get_watermark_offsets": "use beginning_offsets([partition]) and end_offsets([partition])",
        "highwater": "use end_offsets([partition])",
        "last_stable_offset": "use end_offsets([partition]) with isolation_level='read_committed', "
        "or Log.partition(topic, number).last_stable_offset",
        "last_poll_timestamp": "it is not kept; lag() tells how far this consumer is behind",
        "unassign": "use unsubscribe()",
        "incremental_assign": "use assign(partitions) with all of them; those assigned before keep their positions",
        "incremental_unassign": "use assign(partitions) with those that stay; they keep their positions",
        **_each("bootstrap bootstrap_connected", NO_SERVER),
        "start": _START,
        "stop": "use close()",
        "set_sasl_credentials": NO_USERS,
    },
    "Log": {
        "create_topics": "use create_topic(name, partitions=n), once for each",
        "delete_topics": "use delete_topic(name), once for each",
        "describe_topics": "use describe_topic(name), once for each",
        "describe_topic_partitions": "use describe_topic(name).numbers, or partition(topic, number)",
        "list_topics": "use topics()",
        "wait_for_topics": "a topic is there when create_topic returns",
        "create_partitions": "use add_partitions(name, total)",
        "describe_configs": "use describe_topic(name).config",
        "list_config_resources": "use topics(): only topics have a configuration",
        **_each("alter_configs incremental_alter_configs reset_configs", _ALTER),
        "list_offsets": "use partition(topic, number).earliest_offset, latest_offset, or offset_for_time(timestamp_ms)",
        "list_partition_offsets": "use partition(topic, number).earliest_offset, latest_offset, "
        "or offset_for_time(timestamp_ms)",
        **_each("list_groups list_consumer_groups", "use groups()"),
        **_each("describe_groups describe_consumer_groups", "use describe_group(group), once for each"),
        **_each("list_group_offsets list_consumer_group_offsets", "use describe_group(group).partitions"),
        **_each(
            "alter_group_offsets alter_consumer_group_offsets", "use reset_offsets(group, offsets={partition: offset})"
        ),
        "reset_group_offsets": "use reset_offsets(group, to=…)",
        **_each("delete_groups delete_consumer_groups", "use delete_group(group), once for each"),
        "delete_group_offsets": "use delete_group(group), which forgets all that it has committed",
        "remove_group_members": "a member leaves when it is closed or its process ends",
        "poll": "nothing needs to be polled: each call returns when it is done",
        "describe_producers": "use open_transactions()",
        **_each(
            "describe_cluster alter_replica_log_dirs describe_metadata_quorum describe_features update_features "
            "elect_leaders alter_partition_reassignments list_partition_reassignments",
            NO_REPLICAS,
        ),
        "describe_log_dirs": "use path, and partition(topic, number).size_bytes",
        **_each("api_versions get_broker_version_data", NO_SERVER),
        **_each(
            "create_acls delete_acls describe_acls alter_user_scram_credentials describe_user_scram_credentials "
            "set_sasl_credentials",
            NO_USERS,
        ),
        "list_transactions": "use transactions()",
        "describe_transactions": "use describe_transaction(transactional_id)",
        "find_hanging_transactions": "use open_transactions(), and abort_transaction_at(partition, start_offset)",
    },
    "Delivery": {
        "get": "use result(timeout), in seconds",
        **_each(
            "add_callback add_both",
            "use add_done_callback(function), which is called with the Delivery: result() or exception()",
        ),
        "add_errback": "use add_done_callback(function), which is called with the Delivery: exception() is the error",
        "chain": "use add_done_callback(function)",
        "is_done": "use done()",
        "succeeded": "use done() and exception() is None",
        "failed": "use done() and exception() is not None",
        "retriable": "use exception().retriable",
        "value": "use result(), the RecordMetadata",
        **_each("success failure rebind set_result set_exception", "only the producer decides it"),
        "args": "use add_done_callback(function), which is called with the Delivery",
        "error_on_callbacks": "an error of a callback is logged",
        **_each("cancelled cancel", "a record that was sent cannot be taken back"),
        "running": "use not done()",
    },
    "Record": {
        "timestamp": "use timestamp_ms",
        "timestamp_type": "it belongs to the topic: Log.describe_topic(topic).config.message_timestamp_type",
        "error": "errors are raised by poll",
        **_each("leader_epoch latency", _NOT_KEPT),
        "checksum": "it is of a whole batch, and was checked when the record was read",
        **_each("serialized_key_size serialized_value_size serialized_header_size", _SIZE),
        "set_key": "a record does not change: use record._replace(key=…)",
        "set_value": "a record does not change: use record._replace(value=…)",
        "set_headers": "a record does not change: use record._replace(headers=…)",
    },
    "RecordMetadata": {
        "timestamp": "use timestamp_ms",
        "timestamp_type": "it belongs to the topic: Log.describe_topic(topic).config.message_timestamp_type",
        "topic_partition": "use TopicPartition(metadata.topic, metadata.partition)",
        "log_start_offset": "use Log.partition(topic, number).earliest_offset",
        "checksum": "it is of a whole batch, and is checked when records are read",
        **_each("serialized_key_size serialized_value_size serialized_header_size", _SIZE),
    },
    "TopicPartition": {
        "offset": "a partition and an offset are two values: seek(partition, offset), commit({partition: offset})",
        "metadata": "use OffsetAndMetadata(offset, metadata)",
        "leader_epoch": _NOT_KEPT,
        "error": "errors are raised",
    },
    "OffsetAndTimestamp": {"timestamp": "use timestamp_ms", "leader_epoch": _NOT_KEPT},
    "OffsetAndMetadata": {"leader_epoch": "commits record it themselves"},
    "ConsumerGroupMetadata": {"generation_id": "use generation", "state": "use Log.describe_group(group).state"},
}
"""Attributes and methods, by the class that lacks them."""

_CLOSE = "close() leaves the group at once; with enable_auto_commit it commits what was returned"

KEYWORDS: Mapping[str, Mapping[str, str]] = {
    "Consumer.poll": {
        "timeout_ms": "use timeout, in seconds: timeout_ms=1000 is timeout=1.0",
        "update_offsets": "poll always moves the position; seek(partition, offset) sets it back",
        "num_messages": "use max_records",
    },
    "Producer.send_offsets_to_transaction": {
        "group_id": "use group_metadata: consumer.group_metadata(), or the name of a group without members",
    },
    "Consumer.subscribe": {
        "pattern": "use subscribe(re.compile(pattern)), which must match a topic's whole name",
        "listener": "use on_assigned=, on_revoked= and on_lost=, functions that take a list of partitions",
        "on_assign": "use on_assigned, a function that takes a list of partitions",
        "on_revoke": "use on_revoked, a function that takes a list of partitions",
    },
    "Consumer.commit": {
        "message": "use commit({TopicPartition(record.topic, record.partition): record.offset + 1})",
        "asynchronous": "use commit_async(offsets, callback), or leave it out: commit() returns when it is durable",
        "timeout_ms": _NO_NETWORK,
    },
    "Consumer.committed": {
        "partitions": "use committed(partition), once for each",
        **_each("timeout timeout_ms", _NO_NETWORK),
    },
    "Consumer.position": {"partitions": "use position(partition), once for each", "timeout_ms": _NO_NETWORK},
    "Consumer.offsets_for_times": {
        **_each("timestamps partitions", "use offsets_for_times({partition: timestamp_ms})"),
        **_each("timeout timeout_ms", _NO_NETWORK),
    },
    "Consumer.beginning_offsets": {"timeout_ms": _NO_NETWORK},
    "Consumer.end_offsets": {"timeout_ms": _NO_NETWORK},
    "Consumer.pause": {"partitions": "use pause(*partitions)"},
    "Consumer.resume": {"partitions": "use resume(*partitions)"},
    "Consumer.close": {"autocommit": _CLOSE, "timeout_ms": _CLOSE},
    "Consumer.metrics": {"raw": "leave it out: metrics() returns numbers by name"},
    "Producer.close": {"null_logger": "leave it out: nothing is logged when a producer is closed"},
    "Producer.metrics": {"raw": "leave it out: metrics() returns numbers by name"},
    "Delivery.result": {"timeout_ms": "use timeout, in seconds: timeout_ms=1000 is timeout=1.0"},
    "Log.abort_transaction": {"spec": "use abort_transaction(transactional_id): it aborts in every partition"},
    "Log.delete_records": {
        "records_to_delete": "use delete_records(partition, before), once for each",
        "timeout_ms": _NO_NETWORK,
        "partition_leader_id": NO_REPLICAS,
    },
}
"""Keywords of existing methods, by the method that lacks them."""

_CHECK_KEYWORDS_THEMSELVES = {"Consumer.poll", "Delivery.result"}  # a wrapper would cost too much

POSITIONAL: Mapping[str, str] = {
    "Consumer.__init__": "use consumer.subscribe(topics); options are keywords",
    "Producer.__init__": "options are keywords",
    "Log.create_topic": "use create_topic(name, partitions=n); options are keywords",
    "Log.alter_topic": _ALTER,
}
"""Keyword-only calls where users of other clients may pass another positional argument."""

_ASYNC = "there is no asyncio client yet: call poll in a thread, await asyncio.to_thread(consumer.poll, 1.0)"
_NO_SUCH_ERROR = "use pylog.errors.PylogError; docs/api.md lists its kinds"
_LISTENER = "use subscribe(topics, on_assigned=…, on_revoked=…, on_lost=…)"
_FUNCTION = "a serializer or deserializer is a function: value_serializer=…, value_deserializer=…"

MODULE: Mapping[str, str] = {
    "KafkaProducer": "use Producer(Log(directory))",
    "KafkaConsumer": "use Consumer(Log(directory)), then consumer.subscribe(topics)",
    **_each("KafkaAdminClient AdminClient", "use Log(directory): it creates, alters and describes topics and groups"),
    **_each("KafkaClient AIOKafkaClient NoBrokersAvailable", NO_SERVER),
    **_each("AIOKafkaProducer AsyncProducer", "use Producer(Log(directory)): await producer.send(…)"),
    **_each("AIOKafkaConsumer AsyncConsumer", _ASYNC),
    "SerializingProducer": "use Producer(log, key_serializer=…, value_serializer=…)",
    "DeserializingConsumer": "use Consumer(log, key_deserializer=…, value_deserializer=…)",
    "NewTopic": "use Log.create_topic(name, partitions=n)",
    "NewPartitions": "use Log.add_partitions(name, total)",
    "ConfigResource": "use Log.alter_topic(name, …)",
    **_each("ConsumerRecord Message", "use Record"),
    **_each("KafkaError KafkaException", _NO_SUCH_ERROR),
    "KafkaTimeoutError": "use pylog.errors.DeliveryTimeout or BufferTimeout; waiting for a result raises TimeoutError",
    "ConsumerStoppedError": "use pylog.errors.Closed",
    "CommitFailedError": "use pylog.errors.CommitFailed",
    "InvalidTopicError": "use pylog.errors.InvalidTopicName",
    "MessageSizeTooLargeError": "use pylog.errors.RecordTooLarge",
    "OffsetOutOfRangeError": "use pylog.errors.OffsetOutOfRange",
    "TopicAlreadyExistsError": "use pylog.errors.TopicExists",
    "UnknownTopicOrPartitionError": "use pylog.errors.TopicNotFound or InvalidPartition",
    "IllegalOperation": "use pylog.errors.ConfigError",
    **_each("ConsumerRebalanceListener AsyncConsumerRebalanceListener", _LISTENER),
    **_each("Serializer Deserializer DefaultSerializer JsonSerializer", _FUNCTION),
    "IsolationLevel": "use isolation_level='read_committed' or 'read_uncommitted'",
    "OffsetSpec": "use Partition.earliest_offset, latest_offset, or offset_for_time(timestamp_ms)",
    "TopicPartitionReplica": NO_REPLICAS,
    "OFFSET_BEGINNING": "use consumer.seek_to_beginning(partition)",
    "OFFSET_END": "use consumer.seek_to_end(partition)",
    "OFFSET_STORED": "use consumer.seek(partition, consumer.committed(partition))",
    "OFFSET_INVALID": "an offset that is not there is None",
    **_each(
        "TIMESTAMP_CREATE_TIME TIMESTAMP_LOG_APPEND_TIME", "use Log.describe_topic(topic).config.message_timestamp_type"
    ),
    "TIMESTAMP_NOT_AVAILABLE": "a record without a time has timestamp_ms=-1",
}
"""Names that users import from the clients' packages."""


def answers_kafkas_names(cls: _Class) -> _Class:
    """A class decorator: names of the tables raise Python's own errors, with what to use here.

    ``hasattr``, ``dir`` and type checkers do not find them. A named tuple, which cannot name a
    metaclass, is created again with it.
    """
    if not isinstance(cls, AbsentNames):
        cls = AbsentNames(cls.__name__, cls.__bases__, dict(vars(cls)))  # type: ignore[assignment]
    for name in ATTRIBUTES[cls.__name__]:
        setattr(cls, name, _Absent(cls.__name__, name))
    cls.__dir__ = _dir  # type: ignore[assignment, method-assign]  # for instances: dir asks no metaclass
    for method in (KEYWORDS.keys() | POSITIONAL.keys()) - _CHECK_KEYWORDS_THEMSELVES:
        owner, _, name = method.partition(".")
        if owner == cls.__name__ and name != "__init__":  # ``refuses_other_options`` decorates it
            setattr(cls, name, _answering(getattr(cls, name), KEYWORDS.get(method, {})))
    return cls


def no_name(module: str, name: str) -> Exception:
    """The error for a name that ``module`` does not have, for its ``__getattr__``.

    ``from module import name`` replaces an ``AttributeError`` by an ``ImportError`` without a hint.
    So an import statement gets an ``ImportError``, other access an ``AttributeError``.
    """
    advice = MODULE.get(name)
    if isinstance(vars(sys.modules["pylog.errors"]).get(name), type):
        advice = f"use pylog.errors.{name}"
    if advice is None:
        return AttributeError(f"module {module!r} has no attribute {name!r}", name=name, obj=sys.modules[module])
    asking = sys._getframe(2)
    if asking.f_code.co_code[asking.f_lasti] == opmap["IMPORT_FROM"]:
        return ImportError(f"cannot import name {name!r} from {module!r}: {advice}", name=module)
    return AttributeError(f"module {module!r} has no attribute {name!r}: {advice}")


def refuse_keywords(method: str, given: Iterable[str]) -> NoReturn:
    """A ``TypeError`` in Python's words for unknown keywords, with a hint."""
    name = next(iter(given))
    advice = KEYWORDS[method].get(name)
    raise TypeError(f"{method}() got an unexpected keyword argument {name!r}{f': {advice}' if advice else ''}")


def refuse_positional(function: Callable[..., object], given: int) -> NoReturn:
    """A ``TypeError`` in Python's words for too many positional arguments, with a hint."""
    name, most = function.__qualname__, function.__code__.co_argcount
    raise TypeError(f"{name}() takes {most} positional arguments but {given} were given: {POSITIONAL[name]}")


def _answering(function: Callable[..., Any], keywords: Mapping[str, str]) -> Callable[..., Any]:
    most = function.__code__.co_argcount if function.__qualname__ in POSITIONAL else sys.maxsize

    @wraps(function)
    def answering(*args: Any, **given: Any) -> Any:
        if len(args) > most:
            refuse_positional(function, len(args))
        if given and (absent := [name for name in given if name in keywords]):
            refuse_keywords(function.__qualname__, absent)
        return function(*args, **given)

    return answering


class _Absent:
    """Replaces an absent attribute: reading it raises an error with what to use."""

    __slots__ = ("_name", "_owner")

    def __init__(self, owner: str, name: str) -> None:
        self._owner = owner
        self._name = name

    def __get__(self, instance: object, owner: type) -> NoReturn:
        advice = ATTRIBUTES[self._owner][self._name]
        raise AttributeError(f"{owner.__name__!r} object has no attribute {self._name!r}: {advice}")


class AbsentNames(ABCMeta):
    """The metaclass of a class with absent names, each a descriptor that ``dir`` leaves out.

    Before Python 3.12, ``__getattr__`` would make each attribute of its class five to ten times
    slower to read. This one derives from ``ABCMeta``, so that a subclass may be abstract.
    """

    def __dir__(cls) -> list[str]:
        return [name for name in super().__dir__() if not cls.is_absent(name)]

    def is_absent(cls, name: str) -> bool:
        """Whether the first class with the name has only a hint, and not a method."""
        return isinstance(next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None), _Absent)


def _dir(self: Any) -> Iterable[str]:
    own = getattr(self, "__dict__", ())
    return [name for name in object.__dir__(self) if name in own or not type(self).is_absent(name)]
