"""Checks a history for anomalies: what a log that keeps its promises never shows, whoever is killed, stopped or forked.

``check(read_history(path))`` in a program; ``python -m pylog.testing.checker FILE`` on a command line. The definitions are our
reading of those of Jepsen's Kafka workload, with some that only a log of files needs; ``KINDS`` has them all.
"""

from pylog.testing.checker.anomaly import Anomaly
from pylog.testing.checker.verdict import KINDS, Verdict, check

__all__ = ["KINDS", "Anomaly", "Verdict", "check"]
