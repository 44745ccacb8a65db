"""How far a numbered feed has come in the log: the last of its batches that is there.

Each batch is one transaction, which commits the next batch's number as an offset of the feed's
group. The offset is for a partition that no topic's deletion takes along.
"""

from __future__ import annotations

from pylog.checks import OFFSETS_TOPIC
from pylog.group.admin import GroupAdmin
from pylog.manager.manager import LogManager
from pylog.model import TopicPartition

POSITION = TopicPartition(OFFSETS_TOPIC, 0)
"""What the offset is committed for. A feed's records go to any topics, each of which may be
deleted."""


def next_batch(manager: LogManager, group: str) -> int | None:
    """The number of the batch to write next; None if the log has none of this group.

    To be called by the owner of the transactional id: no other process commits any more, and what
    earlier owners have decided is durable.
    """
    offsets = manager.part(GroupAdmin).offsets
    offsets.create_topic()
    committed = offsets.look(group).offsets.get(POSITION)
    return None if committed is None else committed.offset
