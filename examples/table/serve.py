"""Serves the newest state of each aircraft over HTTP, while the topic changes.

    python serve.py LOG [--table DIRECTORY] [--port 8013] [--store memory|rocksdict]

GET /aircraft/N14228 answers with the aircraft's newest flight, GET /aircraft with the number of
aircraft.
"""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from aircraft import TOPIC

import pylog
from pylog import Log, Table
from pylog.errors import PylogError


def server(table: Table, port: int) -> ThreadingHTTPServer:
    """A server of this table. Each request has a thread; they share the table."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = self.path.strip("/").split("/")
            if parts == ["aircraft"]:
                self.answer(200, json.dumps({"aircraft": len(table), **table.metrics()}).encode())
            elif len(parts) == 2 and parts[0] == "aircraft" and (state := table.get(parts[1].encode())) is not None:
                self.answer(200, state)
            else:
                self.answer(404, b"{}")

        def answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Requests are not logged."""

    return ThreadingHTTPServer(("127.0.0.1", port), Handler)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log", type=Path)
    parser.add_argument("--table", type=Path, help="where the table is saved (default: beside the log)")
    parser.add_argument("--port", type=int, default=8013, help="0 takes a free one")
    parser.add_argument("--store", choices=["memory", "rocksdict"], default="memory")
    arguments = parser.parse_args()
    directory = arguments.table or arguments.log.with_name(f"{arguments.log.name}-table")
    with (
        Log(arguments.log, create=False) as log,
        pylog.table(log, TOPIC, store=arguments.store, directory=directory, snapshot_records=1000) as table,
        server(table, arguments.port) as serving,
    ):
        print(json.dumps({"port": serving.server_address[1], **table.metrics()}), flush=True)
        with suppress(KeyboardInterrupt):
            serving.serve_forever(poll_interval=0.1)


if __name__ == "__main__":
    try:
        main()
    except PylogError as error:
        sys.exit(f"{type(error).__name__}: {error}")
