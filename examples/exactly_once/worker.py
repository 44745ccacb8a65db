"""One worker: reads lines, counts their words, and writes the counts, each line exactly once.

    python worker.py DIRECTORY words-0

It has no handling of crashes: after one, start it again. The second argument is its transactional
id. No two workers may have the same one at a time; the next worker with it ends what the one before
has left.
"""

from __future__ import annotations

import sys

from words import COUNTS, GROUP, LINES, count_words

from pylog import Consumer, Log, Producer

LINES_AT_ONCE = 20  # in one transaction


def work(directory: str, transactional_id: str) -> None:
    with (
        Log(directory) as log,
        Producer(log, transactional_id=transactional_id) as producer,
        Consumer(log, group_id=GROUP, auto_offset_reset="earliest", isolation_level="read_committed") as consumer,
    ):
        producer.init_transactions()
        consumer.subscribe(LINES)
        while True:
            if records := consumer.poll(1.0, max_records=LINES_AT_ONCE):
                with producer.transaction():
                    for word, count in count_words(record.value for record in records).items():
                        producer.send(COUNTS, b"%d" % count, key=word)
                    positions = {partition: consumer.position(partition) for partition in consumer.assignment()}
                    producer.send_offsets_to_transaction(positions, consumer.group_metadata())


if __name__ == "__main__":
    work(*sys.argv[1:])
