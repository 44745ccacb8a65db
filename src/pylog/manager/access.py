"""What producers and consumers use of a log, and how they get it from a user's argument.

A ``Log`` is a public face; its manager does the work. Another log for producers or consumers has
these members as well, and returns itself, or another object, as its ``manager``. Groups,
transactions, named producers and tables need a ``LogManager``: they keep files beside the topics.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Protocol, TypeVar

from pylog.errors import Closed, ConfigError

if TYPE_CHECKING:
    from pylog.catalog import TopicDescription
    from pylog.clock import Clock
    from pylog.manager.manager import LogManager
    from pylog.model import AppendResult, Flushable
    from pylog.partition.partition_log import PartitionLog
    from pylog.storage import Watch

Part = TypeVar("Part")


class OpenedLog(Protocol):
    """What every user of a log needs."""

    clock: Clock

    @property
    def path(self) -> str:
        """The directory, as named when the log was opened."""

    @property
    def closed(self) -> bool:
        """Whether the log was closed."""

    def require_writable(self) -> None:
        """Raises ``ReadOnlyLog``, with the reason, if records can't be appended; ``Closed``."""

    def catalog_version(self) -> int:
        """A number that differs after each change of a topic."""

    def describe_topic(self, name: str) -> TopicDescription:
        """Return the topic. Raises ``TopicNotFound``."""

    def close_gone(self, name: str) -> None:
        """Close what is open of a topic that was deleted, repartitioned or created again."""


class ProducerPartition(Protocol):
    """What a producer uses of a partition."""

    topic_id: str
    is_closed: bool

    def append_batch(
        self,
        batch: bytearray,
        *,
        timeout_ms: int,
        min_timestamp_ms: int | None,
        require_ongoing: Callable[[], object] | None = None,
    ) -> AppendResult:
        """See ``PartitionLog.append_batch``."""

    def is_syncing_here(self) -> bool:
        """Whether this thread was interrupted in ``sync``."""

    def sync(self, end_offset: int) -> None:
        """Return when all records before this offset are on the disk."""


class ProducerLog(OpenedLog, Protocol):
    """A log as a producer uses it."""

    def topic_to_send_to(self, name: str) -> TopicDescription:
        """The topic, created if necessary and allowed."""

    def partition(self, topic: str, number: int) -> ProducerPartition:
        """Return the partition. Raises ``TopicNotFound``, ``InvalidPartition``."""

    def next_producer_id(self) -> int:
        """An id that no other producer of this log has or had."""

    def flush_on_close(self, producer: Flushable) -> None:
        """Let the producer write its buffered records when the log is closed."""


class ConsumerLog(OpenedLog, Protocol):
    """A log as a consumer uses it."""

    def topics(self) -> list[str]:
        """The names of all topics, sorted."""

    def existing_topics(self, names: Iterable[str]) -> dict[str, TopicDescription]:
        """Those of these topics that exist, by one look at the catalog."""

    def partition(self, topic: str, number: int) -> PartitionLog:
        """Return the partition. Raises ``TopicNotFound``, ``InvalidPartition``."""

    def wake(self) -> None:
        """Let all waits of this process check again whether they are ready."""

    def watch(self, partitions: Collection[PartitionLog], more: Collection[str] = ()) -> Watch | None:
        """A watch of these partitions, the topics and ``more`` files; None if impossible."""

    def wait_for_change(self, ready: Callable[[], bool], timeout_s: float, watch: Watch | None = None) -> bool:
        """Wait until ``ready()`` or the timeout. Returns whether it was ready."""

    def part(self, make: Callable[[LogManager], Part]) -> Part:
        """The single part of this kind, for example the groups."""


Access_co = TypeVar("Access_co", bound=OpenedLog, covariant=True)


class LogFace(Protocol[Access_co]):
    """A ``Log``, or another log with a manager."""

    @property
    def manager(self) -> Access_co:
        """The object that does the work."""


def manager_of(log: LogFace[Access_co], user: str) -> Access_co:
    """The manager of the log given to ``user``. ``ConfigError`` if it is not a log; ``Closed``."""
    if isinstance(log, type) or not hasattr(log, "manager"):
        raise ConfigError(
            f"the first argument is a Log, got {log!r:.80} ({type(log).__name__}): {user}(Log(path))",
            option="log", value=log,
        )  # fmt: skip
    manager = log.manager
    if manager.closed:
        raise Closed(f"the log {manager.path!r} has been closed; open a new one", path=manager.path)
    return manager
