"""Loopback connections that others opened in this process."""

from __future__ import annotations

import os

from pylog.interrupts import suppress

_DESCRIPTORS = "/proc/self/fd"


def acknowledge_at_once() -> None:
    """Acknowledge what this process's TCP connections have received, and what they receive next.

    A sender that writes a message in two parts waits for the acknowledgement of the first, which
    the receiver's kernel delays by up to 40 ms (tcp(7), ``TCP_QUICKACK``). Without that option
    (Linux has it), or without /proc, it does nothing.
    """
    import socket  # most processes need it only here, or not at all

    if not hasattr(socket, "TCP_QUICKACK"):
        return
    names: list[str] = []
    with suppress(OSError):  # a system without /proc
        names = os.listdir(_DESCRIPTORS)
    for name in names:
        with suppress(OSError):  # not of TCP, or closed since
            if os.readlink(f"{_DESCRIPTORS}/{name}").startswith("socket:"):
                with socket.fromfd(int(name), socket.AF_INET, socket.SOCK_STREAM) as connection:
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
