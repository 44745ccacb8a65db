"""Sends flights, serves the newest one of each aircraft from another process, kills that one, and
compares all answers.

    python run.py [--flights 5000] [--kills 3] [--store memory|rocksdict] [--directory DIR] [--seed
    1]

Exits with 1 if an answer is older than the flights sent before the request, or if the table is not
a scan of the topic.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
from http.client import HTTPConnection
from pathlib import Path

from aircraft import TOPIC, departures, scan

from pylog import Log, Producer
from pylog.errors import PylogError

PARTS = 10


class Server:
    """The process of serve.py, and what it answers."""

    def __init__(self, log: Path, store: str) -> None:
        script = Path(__file__).with_name("serve.py")
        command = [sys.executable, str(script), str(log), "--port", "0", "--store", store]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        first = self._process.stdout.readline()
        if not first:
            raise SystemExit(f"{script} has ended with {self._process.wait()}")
        ready = json.loads(first)
        self.records_read = ready["records"]
        self._connection = HTTPConnection("127.0.0.1", ready["port"], timeout=60)

    def get(self, path: str) -> bytes:
        """The body of an answer."""
        self._connection.request("GET", path)
        return self._connection.getresponse().read()

    def kill(self) -> None:
        """End it as SIGKILL does: it saves nothing."""
        self._connection.close()
        self._process.kill()
        self._process.communicate()


def run(path: Path, arguments: argparse.Namespace) -> int:
    choose = random.Random(arguments.seed)
    flights = departures(arguments.flights)
    killed_after = {choose.randrange(PARTS) for _ in range(arguments.kills)}
    requests = wrong = kills = read_again = before = 0
    with Log(path) as log, Producer(log, acks=1) as producer:
        log.create_topic(TOPIC, partitions=3)
        server = Server(path, arguments.store)
        newest: dict[bytes, bytes] = {}
        for part in range(PARTS):
            for key, value, at_ms in flights[len(flights) * part // PARTS : len(flights) * (part + 1) // PARTS]:
                producer.send(TOPIC, value, key=key, timestamp_ms=at_ms)
                newest[key] = value
            producer.flush()
            for key in choose.sample(sorted(newest), min(20, len(newest))):
                requests += 1
                wrong += server.get(f"/aircraft/{key.decode()}") != newest[key]
            if part in killed_after:
                server.kill()
                server = Server(path, arguments.store)
                kills, read_again, before = kills + 1, read_again + server.records_read, before + _records(log)
        found = scan(log)
        wrong += sum(server.get(f"/aircraft/{key.decode()}") != value for key, value in found.items())
        wrong += json.loads(server.get("/aircraft"))["aircraft"] != len(found)
        requests += len(found) + 1
        server.kill()
    print(f"flights sent         {len(flights):10,}")
    print(f"aircraft             {len(found):10,}")
    print(f"requests answered    {requests:10,}")
    print(f"server killed        {kills:10,}   (it read {read_again:,} records again, of {before:,} before)")
    print(f"wrong answers        {wrong:10,}")
    return 1 if wrong else 0


def _records(log: Log) -> int:
    return sum(log.partition(TOPIC, number).latest_offset for number in log.describe_topic(TOPIC).numbers)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flights", type=int, default=5000, help="of each airport")
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--store", choices=["memory", "rocksdict"], default="memory")
    parser.add_argument("--directory", type=Path, help="of a new log (default: a temporary one)")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.directory is not None:
        return run(arguments.directory / "log", arguments)
    with tempfile.TemporaryDirectory(prefix="pylog-table-") as directory:
        return run(Path(directory) / "log", arguments)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except PylogError as error:
        sys.exit(f"{type(error).__name__}: {error}")
