"""Checks a history for anomalies that a correct log never shows, also after kills, stops and forks.

Call ``check(read_history(path))`` in a program, or ``python -m pylog.testing.checker FILE``. The
definitions are our reading of those of Jepsen's Kafka workload, and some that only a log of files
needs. ``KINDS`` lists them all.
"""

from pylog.testing.checker.anomaly import Anomaly
from pylog.testing.checker.verdict import KINDS, Verdict, check

__all__ = ["KINDS", "Anomaly", "Verdict", "check"]
