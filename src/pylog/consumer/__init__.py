"""Reading records: ``Consumer`` and what it is made of.

consumer.py      the public face: waiting, iteration, one thread at a time (sole_use.py, flight.py)
config.py        the options                        reset.py        auto_offset_reset, a pure value
assignment.py    what is read, as the catalog changes (subscription.py holds its rules, pure)
fetcher.py       whose turn it is, and how much is read ahead
lane.py          one partition: position and buffers (deserialize.py makes keys and values of bytes)
lookup.py        offsets by what they mean
"""

from pylog.consumer.config import ConsumerConfig
from pylog.consumer.consumer import Consumer

__all__ = ["Consumer", "ConsumerConfig"]
