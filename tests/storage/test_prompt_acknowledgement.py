"""What others sent to this process is acknowledged at once; its other descriptors, and other
systems, are left alone."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from pylog.storage import acknowledge_at_once, os_sockets
from tests.storage.connections import delayed_connection, is_delayed

pytestmark = pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="Linux only")


@pytest.fixture
def worker() -> Iterator[socket.socket]:
    with delayed_connection() as connection:
        yield connection


def test_a_connection_is_acknowledged_at_once(worker: socket.socket) -> None:
    acknowledge_at_once()
    assert not is_delayed(worker)


def test_other_descriptors_stay_as_they_are(worker: socket.socket) -> None:
    pair = socket.socketpair()
    reading, writing = os.pipe()
    before = os.listdir("/proc/self/fd")  # sockets, too
    acknowledge_at_once()
    assert os.listdir("/proc/self/fd") == before
    assert not is_delayed(worker)
    os.write(writing, b"x")
    pair[0].sendall(b"x")
    assert os.read(reading, 1) == pair[1].recv(1) == b"x"
    os.close(reading), os.close(writing)
    for end in pair:
        end.close()


def test_a_connection_that_is_closed_meanwhile_keeps_none_from_it(
    worker: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = os.listdir("/proc/self/fd")
    monkeypatch.setattr(os, "listdir", lambda _: ["99999", *numbers])
    acknowledge_at_once()
    assert not is_delayed(worker)


def test_a_system_without_proc_is_left_alone(worker: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os_sockets, "_DESCRIPTORS", "/nowhere/fd")
    acknowledge_at_once()
    assert is_delayed(worker)


def test_a_system_that_cannot_be_asked_for_it_is_left_alone(
    worker: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.delattr(socket, "TCP_QUICKACK")
        acknowledge_at_once()
    assert is_delayed(worker)
