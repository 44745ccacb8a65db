"""One worker: a member of the group, which handles the orders of the partitions it is given.

    python worker.py DIRECTORY worker-by-hand

Start as many as you like, at any time. SIGTERM and Ctrl-C make it finish what it has in hand,
commit and leave. Killed, it has committed all but its last batch at most, which another worker then
handles again: at least once.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

from handled import Handled
from orders import GROUP, LOG, TOPIC, decode

from pylog import Consumer, Log
from pylog.errors import CommitFailed, PylogError, Wakeup

BATCH = 25  # orders between two commits: so many come again, at most, when a worker is killed
MAX_POLL_INTERVAL_MS = 5_000  # a worker that does nothing for so long (kill -STOP) is expelled, and others continue


def work(directory: str, name: str, work_ms: float) -> None:
    """Handle orders until a signal comes."""
    with (
        Log(Path(directory, LOG), create=False) as log,
        Handled(directory) as handled,
        Consumer(
            log,
            group_id=GROUP,
            client_id=name,
            auto_offset_reset="earliest",
            max_poll_records=BATCH,
            max_poll_interval_ms=MAX_POLL_INTERVAL_MS,
        ) as consumer,
    ):
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: consumer.wakeup())  # the next poll raises, so a batch in hand is finished
        try:
            consumer.subscribe(TOPIC)
            while True:
                records = consumer.poll(timeout=1.0)
                for record in records:
                    time.sleep(work_ms / 1_000)  # the work: a call of a payment service, say
                    handled.add(record, decode(record), name)  # the effect comes first,
                if records:
                    with suppress(CommitFailed):  # expelled: others handle these again, and the next poll joins again
                        consumer.commit()  # then how far it has come
        except Wakeup:
            return  # leaving the consumer's block leaves the group: the others take over at once


def main() -> None:
    parser = argparse.ArgumentParser(description="Handle orders, as a member of the group.")
    parser.add_argument("directory")
    parser.add_argument("name", help="by which it is shown")
    parser.add_argument("--work-ms", type=float, default=4.0, help="how long one order takes")
    arguments = parser.parse_args()
    try:
        work(arguments.directory, arguments.name, arguments.work_ms)
    except PylogError as error:
        sys.exit(f"{arguments.name}: {type(error).__name__}: {error}")
    except KeyboardInterrupt:  # before it had begun
        sys.exit(130)


if __name__ == "__main__":
    main()
