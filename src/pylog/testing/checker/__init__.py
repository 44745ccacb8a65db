"""Checks a history for anomalies that a correct log never shows, also after kills, stops and forks.

Call ``check(read_history(path))`` in a program, or ``python -m pylog.testing.checker FILE``.
``KINDS`` lists all kinds. The definitions are our reading of those of Jepsen's Kafka workload; its
G1a is ``aborted-read`` here. Three differences:

- Jepsen allows ``poll-skip`` and ``nonmonotonic-poll`` after ``subscribe``, since a rebalance moves
  positions. Here each ``assign`` of the history names the positions, so that a skip or a step back
  is judged from there, and legal after a seek or a rebalance only.
- ``precommitted-read`` is any read of a transaction before its commit was invoked, not only its
  own.
- Transactions of Kafka are not isolated: writes interleave (``int-send-skip`` and ``G0`` are
  reported and allowed), and a reader sees one partition of a transaction before another. So edges
  ww are no part of G1c, edges rw (G2) and intermediate reads (G1b) do not apply, and
  ``torn-transaction`` looks at the final reads.

Kinds that only a log of files needs: ``corrupt-value``, ``vanished-read``, ``torn-batch``,
``retention-early``, ``order-per-producer``, ``realtime-order`` and ``stuck``; and those of groups:
``zombie-commit``, ``commit-regression``, ``commit-ahead``, ``lost-commit``, ``aborted-commit`` and
``group-overlap``.
"""

from pylog.testing.checker.anomaly import Anomaly
from pylog.testing.checker.verdict import KINDS, Verdict, check

__all__ = ["KINDS", "Anomaly", "Verdict", "check"]
