"""The whole example: a sender, a pool of workers that follows the lag, a live view of it, and a
check. See README.md.

python run.py [--seconds 30] [--kill-every 3]
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from handled import Handled
from orders import LOG, TOPIC
from pool import ChildFailed, Pool
from scaler import Scaler
from status import Status, Watch
from view import View, counted, view
from worker import BATCH

from pylog import Log
from pylog.errors import PylogError, TopicExists

TICK_S = 0.2
PATIENCE_S = 30.0  # without any order being handled, once all are sent


def main() -> int:
    arguments = parse_arguments()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: the other processes are ended, too
    try:
        with directory_of(arguments) as directory:
            return run(directory, arguments)
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130
    except TopicExists as error:
        print(f"{error}; this example needs a directory of its own", file=sys.stderr)
    except (ChildFailed, PylogError) as error:
        print(f"\nfailed: {error}", file=sys.stderr)
    return 1


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False, description="A pool of workers that follows the lag.")
    orders = parser.add_argument_group("the orders")
    orders.add_argument("--seconds", type=positive, default=30.0, help="how long orders come in (default: 30)")
    orders.add_argument("--rate", type=positive, default=150.0, help="orders a second (default: 150)")
    orders.add_argument(
        "--rush", type=positive, default=5.0, help="times as many in the middle third of the time (default: 5)"
    )
    orders.add_argument("--partitions", type=count, default=8, help="default: 8")
    workers = parser.add_argument_group("the workers")
    workers.add_argument("--min", type=count, default=1, help="the fewest workers (default: 1)")
    workers.add_argument("--max", type=count, default=6, help="the most workers (default: 6)")
    workers.add_argument("--high", type=count, default=200, help="start one above this lag per worker (default: 200)")
    workers.add_argument(
        "--low", type=count, default=50, help="stop one when it has been below this for 3 s (default: 50)"
    )
    workers.add_argument("--work-ms", type=positive, default=4.0, help="how long an order takes (default: 4)")
    workers.add_argument("--kill-every", type=positive, metavar="S", help="kill a worker every so many seconds")
    workers.add_argument("--seed", type=int, help="of the choice whom to kill")
    parser.add_argument(
        "--directory", type=Path, help="where to put log and results, and keep them; default: temporary"
    )
    arguments = parser.parse_args()
    if arguments.min > arguments.max:
        parser.error(f"--min {arguments.min} is more than --max {arguments.max}")
    return arguments


def positive(text: str) -> float:
    number = float(text)
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return number


def count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 1")
    return number


@contextmanager
def directory_of(arguments: argparse.Namespace) -> Iterator[Path]:
    if arguments.directory:
        yield arguments.directory
    else:
        with TemporaryDirectory(prefix="worker-pool-") as directory:
            yield Path(directory)


def run(directory: Path, arguments: argparse.Namespace) -> int:
    directory.mkdir(parents=True, exist_ok=True)
    with Log(directory / LOG) as log, Handled(directory) as handled:
        log.create_topic(TOPIC, partitions=arguments.partitions)
        with view() as shown, Pool(directory, arguments.work_ms, shown.note) as pool:
            options = [f"--{name}={getattr(arguments, name)}" for name in ("seconds", "rate", "rush")]
            pool.start_sender(*options)
            watch = Watch(log)
            sent = supervise(pool, watch, shown, arguments)
            pool.finish()
            status = watch.look()
            shown.show(status)
        return summarize(pool, handled, sent, status)


def supervise(pool: Pool, watch: Watch, shown: View, arguments: argparse.Namespace) -> int:
    """Keep the pool as large as the lag asks for, until all is sent and handled: how many were
    sent."""
    chance = random.Random(arguments.seed)
    began_s = progress_s = time.monotonic()
    kill_s = began_s + (arguments.kill_every or float("inf"))
    scaler = Scaler(arguments.min, arguments.max, arguments.high, arguments.low, began_s)
    wanted, handled = arguments.min, 0
    pool.keep(wanted, "the fewest there are to be")
    while True:
        sent = pool.sent()
        status = watch.look()
        shown.show(status)
        now_s = time.monotonic()
        if status.handled > handled:
            progress_s, handled = now_s, status.handled
        if sent is not None and (status.lag == 0 or now_s - progress_s > PATIENCE_S):
            return sent
        pool.check()
        pool.keep(wanted, "in place of one that is gone")
        wanted = scaler.decide(wanted, status.lag, now_s)
        pool.keep(wanted, f"the lag is {status.lag:,}")
        if sent is None and now_s >= kill_s:
            kill_s = now_s + arguments.kill_every
            pool.kill_one(chance)
        time.sleep(TICK_S)


def summarize(pool: Pool, handled: Handled, sent: int, status: Status) -> int:
    lost = handled.missing(sent)
    print(f"\nsent           {sent:8,}")
    print(f"handled        {handled.orders():8,}")
    print(f"handled twice  {handled.twice():8,}   (at most {BATCH} for each worker gone before it had committed)")
    print(f"lost           {lost:8,}")
    workers = f"{counted(pool.started, 'worker')} started, {pool.stopped} stopped, {pool.killed} killed"
    print(f"\n{workers}; {counted(status.rebalances, 'rebalance')}")
    if lost:
        print("\nORDERS WERE LOST.")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
