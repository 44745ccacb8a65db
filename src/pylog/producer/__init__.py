"""Sends records: batches, their outcome, and the thread that writes lingering batches."""

from pylog.producer.config import ProducerConfig
from pylog.producer.delivery import Delivery
from pylog.producer.producer import Producer

__all__ = ["Delivery", "Producer", "ProducerConfig"]
