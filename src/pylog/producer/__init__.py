"""Sends records: batches, their fate, and the thread that does not let them wait (see ``producer.py``)."""

from pylog.producer.config import ProducerConfig
from pylog.producer.deliveries import Deliveries
from pylog.producer.delivery import Delivery
from pylog.producer.producer import Producer

__all__ = ["Deliveries", "Delivery", "Producer", "ProducerConfig"]
