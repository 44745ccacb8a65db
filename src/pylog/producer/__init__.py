"""Sends records: batches, their outcome, and the thread that writes those that linger (see ``producer.py``)."""

from pylog.producer.config import ProducerConfig
from pylog.producer.deliveries import Deliveries
from pylog.producer.delivery import Delivery
from pylog.producer.producer import Producer

__all__ = ["Deliveries", "Delivery", "Producer", "ProducerConfig"]
