"""Reading records: ``Consumer`` and its parts.

consumer.py            the public face (thread_guard.py: one thread at a time)
config.py              the options
assignment.py          what is read as the catalog changes (subscription.py: its rules, pure)
group_assignment.py    the same in a group (commit_tracker.py: what is processed and committed)
poll_loop.py           waiting
fetcher.py             the partitions' turns, and how much is read ahead
assigned_partition.py  one partition: position and buffers
decoding.py            batches become records (arrow_decoding.py: become columns)
stored_offsets.py      positions in the application's database
offset_lookup.py       offsets by their meaning (reset.py: auto_offset_reset, a pure value)
"""

from pylog.consumer.config import ConsumerConfig
from pylog.consumer.consumer import Consumer

__all__ = ["Consumer", "ConsumerConfig"]
