"""Checks of arguments: each returns, or raises one error with the given and the expected value."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import wraps
from math import inf
from sys import float_info
from typing import Any, NoReturn, TypeVar

from pylog.errors import ConfigError, InvalidTopicName
from pylog.interrupts import own
from pylog.kafka_names import NO_REPLICAS, NO_SERVER, NO_USERS, refuse_positional
from pylog.model import TopicPartition

TRANSACTIONS_TOPIC = "__transaction_state"
OFFSETS_TOPIC = "__consumer_offsets"

_MOST = float_info.max  # an integer above it cannot be added to a time
_T = TypeVar("_T")
_Function = TypeVar("_Function", bound=Callable[..., object])

_OPTIONS: Mapping[str, str] = {
    NO_SERVER: "bootstrap_servers bootstrap_timeout_ms api_version client_dns_lookup kafka_client proxy_url socks5_proxy",
    NO_REPLICAS: "client_rack min_insync_replicas",
    NO_USERS: "security_protocol sasl_kerberos_domain_name sasl_kerberos_name sasl_kerberos_service_name sasl_mechanism "
    "sasl_oauth_token_provider sasl_plain_password sasl_plain_username ssl_cafile ssl_certfile ssl_check_hostname "
    "ssl_ciphers ssl_context ssl_crlfile ssl_keyfile ssl_password",
    "there is no network here; leave it out": "connections_max_idle_ms enable_incremental_fetch_sessions "
    "max_in_flight_requests_per_connection metadata_max_age_ms receive_buffer_bytes receive_message_max_bytes "
    "reconnect_backoff_max_ms reconnect_backoff_ms request_timeout_ms retry_backoff_ms selector send_buffer_bytes "
    "socket_options",
    "leave it out: metrics() returns numbers by name": "metric_group_prefix metric_reporters metrics_enabled "
    "metrics_num_samples metrics_sample_window_ms",
    "use Log(directory, auto_create_topics=True)": "allow_auto_create_topics",
}
CLIENT_OPTIONS: Mapping[str, str] = {name: advice for advice, names in _OPTIONS.items() for name in names.split()}
"""Options that all of Kafka's clients have, and pylog does not."""


def require_whole(option: str, value: object) -> int:
    """``value`` if it is a whole number; else ``ConfigError`` (True is not a number here)."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise _wrong(option, "a whole number", value)
    return value


def require_count(option: str, value: object, least: int, most: int | None = None) -> int:
    """``value`` if it is a whole number from ``least`` (to ``most``); else ``ConfigError``."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least or (most is not None and value > most):
        bounds = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise _wrong(option, f"a whole number {bounds}", value)
    return value


def _wrong(option: str, expected: str, value: object) -> ConfigError:
    try:
        shown = f"{value!r:.80}"
    except own(ValueError):  # Python does not write numbers of some thousand digits
        shown = "a number of thousands of digits"
    return ConfigError(f"{option} must be {expected}, not {shown}", option=option, value=value)


def refuse_records(topic: object, call: str) -> None:
    """Raises ``InvalidTopicName`` for the topics that only commits write, as a broker refuses
    records for them."""
    refuse_decisions(topic, call)
    if topic == OFFSETS_TOPIC:
        raise InvalidTopicName(
            f"{call}: {OFFSETS_TOPIC} says what the groups of this log have committed: commit offsets, or take another topic",
            name=topic,
        )


def refuse_decisions(topic: object, call: str) -> None:
    """Raises ``InvalidTopicName`` for the topic that says which transactions are committed: only
    those write it."""
    if topic == TRANSACTIONS_TOPIC:
        raise InvalidTopicName(
            f"{call}: {TRANSACTIONS_TOPIC} says which transactions of this log are committed, and is only read; take another "
            "topic",
            name=topic,
        )


def require_seconds(option: str, value: object) -> None:
    """Raises ``ConfigError`` unless ``value`` is a number of seconds from 0 to infinity."""
    if not isinstance(value, int | float) or isinstance(value, bool) or (not 0 <= value <= _MOST and value != inf):
        raise _wrong(option, "a number of seconds of at least 0", value)


def require_milliseconds(option: str, value: object) -> float:
    """``value`` if it is a finite number of milliseconds from 0; else ``ConfigError``."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= _MOST:
        raise _wrong(option, "milliseconds, 0 or more", value)
    return value


def require_timeout(value: object) -> None:
    """Raises ``ConfigError`` unless ``value`` is a number of seconds, also below 0, or None (no
    limit)."""
    if value is None:
        return
    if not isinstance(value, int | float) or isinstance(value, bool) or (not abs(value) <= _MOST and abs(value) != inf):
        raise _wrong("timeout", "a number of seconds, or None", value)


def require_bool(option: str, value: object) -> None:
    if not isinstance(value, bool):
        raise _wrong(option, "True or False", value)


def require_bools(**options: object) -> None:
    for option, value in options.items():
        require_bool(option, value)


def require_callable(option: str, value: _Function, takes: str) -> _Function:
    if not callable(value):
        raise _wrong(option, f"a callable that takes {takes}", value)
    return value


def require_several(option: str, values: Iterable[Any]) -> Sequence[Any]:
    """``values`` in a list of its own, or a tuple. A single str or bytes is refused.

    A buffer that an iterator gives is copied: it may fill the same one again for the next value.
    """
    if isinstance(values, list | tuple):
        return values if type(values) is tuple else list(values)
    if isinstance(values, str | bytes | bytearray | memoryview) or not hasattr(values, "__iter__"):
        raise ConfigError(
            f"{option} must be several values, as a list, not {type(values).__name__}", option=option, value=values
        )
    return [value if type(value) is bytes else copy_of_buffer(value) for value in values]


def copy_of_buffer(value: Any) -> Any:
    """A bytearray or memoryview as another one of the same bytes; other values as they are."""
    if isinstance(value, bytearray):
        return bytearray(value)
    if isinstance(value, memoryview):
        try:
            return memoryview(value.tobytes())
        except own(ValueError):  # it was released: what encodes it says so, with its index
            pass
    return value


def refuses_other_options(
    owner: str, known: Collection[str], elsewhere: Mapping[str, str]
) -> Callable[[_Function], _Function]:
    """Decorates an ``__init__``, or a function: ``ConfigError``, with a hint (``meant``), for
    keywords not ``known``.

    The signature names each option, so that a type checker finds a misspelt one.
    """

    def decorate(init: _Function) -> _Function:
        positional = init.__code__.co_argcount

        @wraps(init)
        def checked(*args: Any, **options: Any) -> object:
            if len(args) > positional:
                refuse_positional(init, len(args))
            for option in options.keys() - known - {"log"}:
                hint = meant(option, known, elsewhere)
                raise ConfigError(f"{owner} has no option {option!r:.80}; {hint}", option=option, value=options[option])
            return init(*args, **options)

        return checked  # type: ignore[return-value]  # for a checker, it takes what ``init`` takes

    return decorate


def warn_of_milliseconds(timeout: int, stacklevel: int) -> None:
    """``UserWarning``, once per line of the caller, that these seconds may mean milliseconds."""
    from warnings import warn

    warn(
        f"poll({timeout}) waits up to {timeout} seconds, not milliseconds: for {timeout} ms, poll({timeout / 1000:g}); "
        f"if seconds are meant, poll({timeout}.0)",
        stacklevel=stacklevel,
    )


def meant(option: str, known: Collection[str], elsewhere: Mapping[str, str]) -> str:
    """The hint for an unknown option: from ``elsewhere`` or ``CLIENT_OPTIONS``, the most similar
    known one, or all known ones."""
    from difflib import get_close_matches  # only errors need it

    here = option.replace(".", "_").replace("-", "_")
    if here in elsewhere:
        return elsewhere[here]
    if here in known:
        return f"here it is {here}"
    if here in CLIENT_OPTIONS:
        return CLIENT_OPTIONS[here]
    close = get_close_matches(here, known, n=1)
    return f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}"


class OfOneProcess:
    """Can't be copied or sent to another process: it has files, locks and threads of this one."""

    __slots__ = ()

    _instead = "open the log's directory in each process"

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} can't be copied or pickled: {self._instead}")


def partition_of(value: object) -> TopicPartition:
    """``value``, a pair of a topic's name and a number, as a ``TopicPartition``."""
    if isinstance(value, tuple) and len(value) == 2:
        topic, number = value
        if isinstance(topic, str) and isinstance(number, int) and not isinstance(number, bool):
            return TopicPartition(topic, number)
    raise ConfigError(f"expected a TopicPartition or a pair (topic, number), not {value!r}", partition=value)


def partitions_of(values: Iterable[object]) -> list[TopicPartition]:
    """``values`` as partitions, without duplicates, in the given order."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise ConfigError(f"expected several TopicPartitions, not {values!r}", partitions=values)
    if isinstance(values, TopicPartition):
        raise ConfigError(
            f"expected several TopicPartitions, not the single {values!r}: pass a list", partitions=values
        )
    return list(dict.fromkeys(partition_of(value) for value in values))


def topics_and_partitions(values: Iterable[object]) -> list[str | TopicPartition]:
    """``values``, names of topics or partitions, or a single one of them, in a list."""
    several = [values] if isinstance(values, str | TopicPartition) else require_several("partitions", values)
    return [value if isinstance(value, str) else partition_of(value) for value in several]


def by_partition(option: str, values: Mapping[Any, _T], kind: str) -> dict[TopicPartition, _T]:
    """``values``, a mapping of partitions to values of this ``kind``."""
    if not isinstance(values, Mapping):
        raise ConfigError(f"{option} must be a mapping of TopicPartition to {kind}, not {values!r:.80}", option=option)
    return {partition_of(partition): value for partition, value in values.items()}
