"""A connection as Spark has it between a driver and its worker, on which the kernel delays
acknowledgements."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager

EXCHANGES = 20


@contextmanager
def delayed_connection() -> Iterator[socket.socket]:
    """The worker's end."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        driver = socket.create_connection(server.getsockname())
        connection, _ = server.accept()
        with driver, connection:
            for _ in range(EXCHANGES):  # who answers is taken for one whose answers carry acknowledgements
                driver.sendall(b"task")
                connection.recv(4)
                connection.sendall(b"rows")
                driver.recv(4)
            assert is_delayed(connection)
            yield connection


def is_delayed(connection: socket.socket) -> bool:
    return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK) == 0
