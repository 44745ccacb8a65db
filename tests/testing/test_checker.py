"""Every kind of anomaly is found where it is, and not where it nearly is; the history of a right
log has none."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from pylog.testing.checker import KINDS, check
from pylog.testing.checker.__main__ import main
from pylog.testing.history import read_history, write_history
from tests.testing.defects import DEFECTS, Defect
from tests.testing.histories import Player, history

SENT = "1 ok send 10@0 11@1 12@2"
ALL = "0 ok poll final 10@0 11@1 12@2"

# By kind: histories that have it, and histories that nearly do.
TABLE: dict[str, tuple[list[str], list[str]]] = {
    "inconsistent-offsets": (
        [
            "1 ok send 10@0; 2 ok send 20@0",
            "1 ok send 10@0; 1 info send 11; 2 ok poll 11@0",
            f"{SENT}; 2 ok poll 10@0; 3 info poll 11@0",
            "1 invoke txn 10 u: 11; 1 info txn 10@0 u: 11; 2 ok send 20@0; 3 ok poll u: 11@5",
        ],
        [
            "1 invoke txn 10 u: 11; 1 info txn 10@0 u: 11; 2 ok send 20@0",
            "1 ok send 10@0; 2 ok send 20@1; 3 ok poll 10@0 20@1",
            "1 ok send 10@0; 2 ok send u: 20@0",
            f"{SENT}; 2 ok poll 10@0; 3 ok poll 10@0; 4 fail send 10",
        ],
    ),
    "duplicate": (
        [
            "1 ok send 10@0; 2 ok poll 10@0 10@1",
            "1 ok send 10@0; 2 ok poll 10@5",
            "1 info send 10; 2 ok poll 10@0; 3 fail poll 10@1",
        ],
        [
            "1 ok send 10@0; 2 ok poll 10@0; 3 ok poll 10@0",
            "1 ok send 10@0; 1 ok send u: 10@1; 2 ok poll 10@0 u: 10@1",
            "1 invoke send 10; 1 info send 10; 2 ok poll 10@0",
        ],
    ),
    "lost-write": (
        [
            f"{SENT}; 2 ok poll 10@0 12@2",
            f"{SENT}; 2 ok poll 12@2",
            f"{SENT}; 3 ok delete @2; 0 ok poll final 10@0 12@2",
            "1 invoke txn 10 u: 11; 1 info txn 10@0 u: 11@0; 2 ok send 12@2; 2 ok poll t: 12@2 u: 11@0",
        ],
        [
            "1 invoke txn 10 u: 11; 1 info txn 10@0 u: 11@0; 2 ok send 12@2; 2 ok poll 12@2",
            f"{SENT}; 2 ok poll 10@0 11@1",
            "1 invoke send 10 11; 1 info send 10; 2 ok send 12@2; 2 ok poll 12@2",
            f"{SENT}; 3 ok delete @2; 2 ok poll 12@2",
        ],
    ),
    "unseen": (
        [
            f"{SENT}; 0 ok poll final 10@0 11@1",
            f"{SENT}; 0 ok poll final",
            "1 ok send 10; 0 ok poll final; 2 fail poll 10@0",
        ],
        [
            f"{SENT}; {ALL}",
            f"{SENT}; 2 ok poll 10@0",
            f"{SENT}; 3 ok delete @3; 0 ok poll final",
        ],
    ),
    "aborted-read": (
        [
            "1 fail send 10; 2 ok poll 10@0",
            "1 invoke send 10; 2 ok poll 10@0; 1 fail send 10",
            "1 ok send 9@0; 1 invoke send 10 11; 1 ok send 10@1; 1 fail send 11; 2 ok poll 9@0 10@1 11@2",
            "1 invoke begin 10; 1 fail txn; 2 ok poll 10@0",
            "1 invoke begin 10 u: 11; 1 info crash; 2 ok poll u: 11@0",
            "1 invoke begin 10; 1 invoke begin 11; 1 invoke txn; 1 ok txn 11@1; 2 ok poll 10@0 11@1",
        ],
        [
            "1 invoke begin 10; 1 invoke txn; 1 info crash; 2 ok poll 10@0",
            "1 invoke begin 10; 1 fail txn; 2 ok poll; 1 invoke begin 11; 1 invoke txn; 1 ok txn 11@1; 2 ok poll 11@1",
            "1 info send 10; 2 ok poll 10@0",
            "1 fail send 10; 2 fail poll 10@0",
            "1 fail send 10; 1 ok send 11@0; 2 ok poll 11@0",
        ],
    ),
    "precommitted-read": (
        [
            "1 invoke txn sent 10; 1 ok txn sent 10@0 polled 10@0",
            "1 ok txn sent 10@0 polled 10@0",
            "1 ok send 9@0; 1 invoke txn sent u: 10; 1 ok txn sent u: 10@0 polled 9@0 u: 10@0",
            "1 invoke begin 10; 2 ok poll 10@0; 1 invoke txn; 1 ok txn 10@0",
            "1 invoke begin 10; 1 ok poll 10@0; 1 invoke txn; 1 info crash",
        ],
        [
            "1 invoke begin 10; 1 invoke txn; 2 ok poll 10@0; 1 ok txn 10@0",
            "1 invoke begin 10; 2 info poll 10@0; 1 invoke txn; 1 ok txn 10@0",
            "1 invoke begin 10; 2 ok poll 10@0; 1 fail txn",
            "1 invoke txn sent 10; 1 ok txn sent 10@1 polled 9@0; 2 ok send 9@0",
            "1 ok txn sent 10@0; 1 ok poll 10@0",
            "1 invoke txn sent 10; 1 info txn sent 10 polled 10@0; 2 ok poll 10@0",
        ],
    ),
    "corrupt-value": (
        [
            "1 ok send 10@0; 2 ok poll ?@0",
            "1 ok send 10@0; 2 fail poll ?@0",
            "1 ok send u: 10@0; 2 ok poll 10@0",
        ],
        [
            "1 ok send 10@0; 2 ok poll 10@0",
            "1 ok send u: 10@0; 2 ok poll u: 10@0",
            "2 ok poll 10@0; 1 ok send 10@0",
        ],
    ),
    "vanished-read": (
        [
            "1 info send 10; 2 ok poll 10@0; 0 ok poll final",
            f"{SENT}; 2 ok poll 10@0 11@1 12@2; 0 ok poll final 10@0 11@1",
            "1 info send 10; 2 ok poll 10@1; 0 ok poll final 10@0",
        ],
        [
            f"{SENT}; 2 ok poll 10@0 11@1 12@2; {ALL}",
            f"{SENT}; 2 ok poll 10@0; 3 ok delete @1; 0 ok poll final 11@1 12@2",
            "1 info send 10; 2 fail poll 10@0; 0 ok poll final",
        ],
    ),
    "torn-batch": (
        [
            "1 invoke send atomic 10 11; 1 info crash; 0 ok poll final 10@0",
            "1 invoke send atomic 10 11 12; 1 ok send 10@0 11@1 12@2; 0 ok poll final 11@1 12@2",
            "1 invoke send atomic 10 11; 2 ok send 20@1; 0 ok poll final 10@0 20@1 11@2",
        ],
        [
            "1 invoke send atomic 10 11; 1 info crash; 0 ok poll final 10@0 11@1",
            "1 invoke send atomic 10 11; 1 info crash; 0 ok poll final",
            "1 invoke send atomic 10 11 12; 1 ok send 10@0 11@1 12@2; 2 ok delete @1; 0 ok poll final 11@1 12@2",
        ],
    ),
    "retention-early": (
        [
            f"{SENT}; 0 ok poll final 11@1 12@2",
            f"{SENT}; 3 ok delete @1; 0 ok poll final 12@2",
            f"{SENT}; 3 invoke delete @2; 3 fail delete @2; 0 ok poll final 12@2",
        ],
        [
            f"{SENT}; 3 ok delete @2; 0 ok poll final 12@2",
            f"{SENT}; 3 invoke delete @2; 3 info crash; 0 ok poll final 12@2",
            f"{SENT}; 3 ok delete @2; {ALL}",
        ],
    ),
    "poll-skip": (
        [
            f"{SENT}; 2 ok poll 10@0; 2 ok poll 12@2",
            f"{SENT}; 2 ok assign @0; 2 ok poll 11@1",
            f"{SENT}; 2 ok poll 10@0; 2 fail poll 12@2",
        ],
        [
            f"{SENT}; 2 ok poll 10@0; 3 ok poll 12@2",
            f"{SENT}; 2 ok poll 10@0; 2 ok assign @2; 2 ok poll 12@2",
            "1 ok send 10@0; 1 ok send 12@2; 2 ok poll 10@0; 2 ok poll 12@2",
        ],
    ),
    "nonmonotonic-poll": (
        [
            f"{SENT}; 2 ok poll 10@0; 2 ok poll 10@0",
            f"{SENT}; 2 ok poll 10@0 11@1; 2 ok poll 10@0",
            f"{SENT}; 2 ok assign @1; 2 ok poll 10@0",
        ],
        [
            f"{SENT}; 2 ok poll 10@0; 2 ok assign @0; 2 ok poll 10@0",
            f"{SENT}; 2 ok poll 10@0; 2 ok assign u: -; 2 ok assign -; 2 ok poll 10@0",
            f"{SENT}; 2 fail poll 10@0; 2 ok poll 10@0",
        ],
    ),
    "int-poll-skip": (
        [
            f"{SENT}; 2 ok poll 10@0 12@2",
            f"{SENT}; 2 fail poll 10@0 12@2",
            f"{SENT}; 3 ok delete @1; 2 ok poll 10@0 12@2",
        ],
        [
            "1 ok send 10@0; 1 ok send 12@2; 2 ok poll 10@0 12@2",
            f"{SENT}; 3 ok delete @2; 2 ok poll 10@0 12@2",
            f"{SENT}; 2 ok poll 10@0 11@1",
        ],
    ),
    "int-nonmonotonic-poll": (
        [
            f"{SENT}; 2 ok poll 10@0 10@0",
            f"{SENT}; 2 ok poll 11@1 10@0",
            f"{SENT}; 2 info poll 10@0 11@1 11@1",
        ],
        [
            f"{SENT}; 2 ok poll 10@0 11@1",
            f"{SENT}; 1 ok send u: 20@0; 2 ok poll 11@1 u: 20@0",
            f"{SENT}; 2 ok poll 10@0; 2 ok poll 10@0",
        ],
    ),
    "nonmonotonic-send": (
        [
            "1 ok send 10@1; 1 ok send 11@0",
            "1 ok send 10@0; 1 ok send 11@0",
            "1 ok send 10@5; 2 ok send 20@6; 1 ok send 11@4",
        ],
        [
            "1 ok send 10@0; 1 ok send 11@5",
            "1 ok send 10@1; 1 ok send u: 11@0",
            "1 ok send 10@1; 2 ok send 11@0",
        ],
    ),
    "int-nonmonotonic-send": (
        ["1 ok send 10@1 11@0", "1 ok send 10@0 11@0", "1 invoke txn sent 10 11; 1 ok txn sent 10@4 11@3"],
        ["1 ok send 10@0 11@1", "1 ok send 10@1 u: 11@0", "1 ok send 10@0 11@2"],
    ),
    "int-send-skip": (
        ["1 ok send 10@0 11@2", "1 ok txn sent 10@0 11@2", "1 invoke send 10 11; 1 ok send 10@0; 1 ok send 11@2"],
        ["1 ok send 10@0 11@1", "1 ok send 10@0; 1 ok send 11@2", "1 ok send 10@0 u: 11@2"],
    ),
    "order-per-producer": (
        [
            "1 invoke send 10 11; 1 info crash; 0 ok poll 11@0 10@1",
            "1 invoke send 10; 1 info send 10; 1 ok send 11@0; 0 ok poll 11@0 10@1",
            "1 invoke send 10 11 12; 1 info crash; 2 ok send 20@1; 0 ok poll 10@0 20@1 12@2 11@3",
        ],
        [
            "1 invoke send 10 11; 1 info crash; 0 ok poll 10@0 11@1",
            "1 info send 10; 2 ok send 20@0; 0 ok poll 20@0 10@1",
            "1 invoke send 10 11 12; 1 info crash; 0 ok poll 10@0 12@1",
        ],
    ),
    "realtime-order": (
        [
            "1 ok send 10@1; 2 invoke send 20; 2 ok send 20@0",
            "1 ok send 10@1; 2 ok poll 10@1; 3 invoke send 20; 3 ok send 20@1",
            "1 invoke send 10; 2 ok send 20@5; 1 ok send 10@4; 3 invoke send 30; 3 ok send 30@3",
        ],
        [
            "2 invoke send 20; 1 ok send 10@1; 2 ok send 20@0",
            "1 ok send 10@1; 2 invoke send u: 20; 2 ok send u: 20@0",
            "1 ok send 10@1; 2 invoke send 20; 2 info send 20; 3 ok poll 20@0",
        ],
    ),
    "zombie-commit": (
        [
            "1 ok assign g1 @0; 2 ok assign g2 @0; 1 invoke commit g1 @0; 1 ok commit g1 @0",
            "1 ok commit g1 @0; 2 ok commit g2 @0; 1 ok commit g1 @0",
            "1 ok assign g1 @0; 1 ok poll 10@0; 2 ok assign g3 -; 1 ok commit g1 @1",
        ],
        [
            "1 ok assign g1 @0; 1 invoke commit g1 @0; 2 ok assign g2 @0; 1 ok commit g1 @0",
            "1 ok assign g1 @0; 2 ok assign g2 u: @0; 1 ok commit g1 @0",
            "1 ok assign g1 @0; 2 ok assign g2 @0; 1 invoke commit g1 @0; 1 fail commit g1 @0",
        ],
    ),
    "commit-regression": (
        [
            "1 ok commit g1 @5; 1 ok commit g1 @4",
            "1 ok commit g1 @5; 2 ok assign g2 @5; 2 ok commit g2 @0",
            "1 ok commit g1 @5; 1 ok commit g1 u: @5; 1 ok commit g1 @9 u: @3",
        ],
        [
            "1 ok commit g1 @5; 1 ok commit g1 @5",
            "1 ok commit g1 @5; 9 ok commit g0 @0; 1 ok commit g1 @1",
            "1 invoke commit g1 @4; 1 fail commit g1 @4; 1 ok commit g1 @5; 2 ok commit g1 u: @4",
        ],
    ),
    "commit-ahead": (
        [
            "1 ok assign g1 @0; 2 ok poll 10@0; 1 ok commit g1 @1",
            f"{SENT}; 1 ok assign g1 @0; 1 ok poll 10@0; 1 ok commit g1 @2",
            f"{SENT}; 1 ok assign g1 @0; 1 invoke commit g1 @1; 1 ok poll 10@0; 1 ok commit g1 @1",
        ],
        [
            f"{SENT}; 1 ok assign g1 @0; 1 ok poll 10@0; 1 ok commit g1 @1",
            f"{SENT}; 1 ok assign g1 @0; 1 ok poll 10@0; 2 ok assign g2 -; 2 ok commit g2 @1",
            "1 ok assign g1 -; 1 ok commit g1 @7",
        ],
    ),
    "lost-commit": (
        [
            "1 ok assign g1 @0; 1 ok poll 10@0; 1 ok commit g1 @1; 2 ok assign g2 @0",
            "1 invoke txn 10 positions g1 @5; 1 ok txn 10@0 positions g1 @5; 2 ok assign g2 @4",
            "1 ok assign g1 @0 u: @0; 1 ok commit g1 @5; 1 ok assign g2 u: -; 1 ok assign g3 @0 u: -",
        ],
        [
            "1 ok assign g1 @0; 1 ok poll 10@0; 1 ok commit g1 @1; 2 ok assign g2 @1",
            "1 invoke txn 10 positions g1 @5; 1 fail txn 10 positions g1 @5; 2 ok assign g2 @4",
            "1 ok assign g1 @0; 1 ok commit g1 @5; 1 ok assign g1 @2",
            "1 ok commit g1 @5; 9 ok commit g0 @0; 2 ok assign g2 @0",
            "2 ok assign g3 @0; 2 ok commit g3 @5; 1 ok assign g2 @0",
        ],
    ),
    "aborted-commit": (
        [
            "1 invoke commit g1 @5; 1 fail commit g1 @5; 2 ok assign g2 @5",
            "1 invoke begin 10; 1 fail txn positions g1 @5; 2 ok assign g2 @5",
            "1 invoke begin 10; 1 invoke txn positions g1 u: @5; 1 fail txn positions g1 u: @5; 2 ok assign g2 @0 u: @5",
        ],
        [
            "1 invoke commit g1 @5; 1 info crash; 2 ok assign g2 @5",
            "1 invoke begin 10; 1 fail txn positions g1 @5; 1 ok assign g1 @0; 2 ok assign g2 @0",
            "1 fail commit g1 @5; 3 invoke commit g1 @5; 3 info crash; 2 ok assign g2 @5",
            "3 ok commit g1 @5; 1 fail commit g1 @5; 2 ok assign g2 @5",
        ],
    ),
    "group-overlap": (
        [
            "1 ok assign g1 @0; 2 ok assign g1 @0",
            "1 ok assign g1 - u: -; 2 ok assign g1 u: -",
            "1 ok assign g1 -; 2 ok assign g2 -; 3 ok assign g2 -",
            "1 ok assign g1 @0; 2 ok assign g1 @0; 1 ok assign g1 u: @0",
            "1 ok assign g1 @0; 2 ok assign g2 @0; 1 ok assign g2 u: @0",
        ],
        [
            "1 ok assign g1 @0; 2 ok assign g2 @0",
            "1 ok assign g1 @0; 2 ok assign g1 u: @0",
            "1 ok assign g1 @0; 1 ok assign g1 @0; 2 fail assign g1 @0",
            "1 ok assign g1 @0 u: @0; 1 ok assign g1 u: -; 2 ok assign g1 @0",
            "1 ok assign g1 @0; 2 ok assign g2 @0; 1 info assign g1; 1 ok assign g3 u: @0",
            "1 ok assign g1 @0; 1 info stop; 2 ok assign g2 @0; 1 ok assign g2 u: @0",
            "1 info stop; 2 ok assign g2 @0; 1 ok assign g1 @0; 2 ok assign g3 u: @0",
        ],
    ),
    "torn-transaction": (
        [
            "1 invoke txn 10 u: 11; 1 ok txn 10@0 u: 11@0; 0 ok poll final 10@0 u:",
            "1 invoke txn 10 11; 1 info crash; 0 ok poll final 11@1",
            "2 ok delete @1; 1 invoke txn 10 u: 11; 1 info crash; 0 ok poll final t: u: 11@0",
            "1 invoke txn 10 u: 11; 1 fail txn 10 u: 11; 0 ok poll final t: u: 11@0",
        ],
        [
            "1 invoke txn 10 u: 11; 1 ok txn 10@0 u: 11@0; 0 ok poll final 10@0 u: 11@0",
            "1 invoke txn 10 u: 11; 1 info crash; 0 ok poll final t: u:",
            "1 invoke txn 10 u: 11; 1 ok txn 10@0 u: 11@0; 2 ok delete @1; 0 ok poll final t: u: 11@0",
            "1 invoke txn 10 u: 11; 1 info crash; 3 ok send 12@1; 2 ok delete @1; 0 ok poll final 12@1 u: 11@0",
        ],
    ),
    "stuck": (
        [
            "1 invoke send 10; 1 ok send 10@0 T=6.1",
            "1 invoke send 10; 2 ok poll T=6",
            "1 ok send 10@0; 2 ok assign @0; 2 ok poll T=1; 2 ok poll T=3; 2 ok poll T=7",
        ],
        [
            "1 invoke send 10; 1 info crash; 2 ok poll T=6",
            "1 invoke send 10; 2 info stop T=1; 2 info continue T=6; 1 ok send 10@0 T=6.1",
            "1 ok send 10@0; 2 ok assign @1; 2 ok poll T=1; 2 ok poll T=3; 2 ok poll T=7",
        ],
    ),
    "G0": (
        [
            "1 invoke txn sent 10 u: 11; 2 invoke txn sent 20 u: 21; 1 ok txn sent 10@0 u: 11@1; 2 ok txn sent 20@1 u: 21@0",
            "1 ok send 10@0 11@2; 2 ok send 20@1",
            "1 invoke send 10 u: 11; 2 invoke send 20 u: 21; 1 info crash; 3 ok poll 10@0 20@1 u: 21@0 11@1",
        ],
        [
            "1 ok txn sent 10@0 u: 11@0; 2 ok txn sent 20@1 u: 21@1",
            "1 ok send 10@0; 2 ok send 20@1; 1 ok send 11@2",
            "1 ok send 10@0 u: 11@1; 2 ok send 20@1; 3 ok send u: 30@0",
        ],
    ),
    "G0-process": (
        [
            "1 ok send 10@1; 1 ok send 11@0",
            "1 ok send 10@2; 1 ok poll; 1 ok send 11@1; 2 ok send 20@0",
            "1 ok send 10@1; 2 ok send u: 21@1; 2 ok send 20@0; 1 ok send u: 11@0",
        ],
        [
            "1 ok send 10@0; 1 ok send 11@1",
            "1 ok send 10@1; 2 ok send 20@0",
            "1 ok send 10@1; 1 ok send u: 11@0",
        ],
    ),
    "G0-realtime": (
        [
            "1 ok send 10@1; 2 invoke send 20; 2 ok send 20@0",
            "1 ok send 10@2; 2 invoke send 20; 3 ok send 30@1; 2 ok send 20@0",
            "1 ok send 10@1; 3 ok poll; 2 invoke send 20; 2 info send 20; 4 ok poll 20@0",
        ],
        [
            "2 invoke send 20; 1 ok send 10@1; 2 ok send 20@0",
            "1 ok send 10@0; 2 invoke send 20; 2 ok send 20@1",
            "1 ok send 10@1; 2 invoke send u: 20; 2 ok send u: 20@0",
        ],
    ),
    "G1c": (
        [
            "1 invoke txn sent 1; 2 invoke txn sent u: 2; 1 ok txn sent 1@0 polled u: 2@0; 2 ok txn sent u: 2@0 polled t: 1@0",
            "1 invoke txn sent 10; 2 invoke txn sent 20; 1 ok txn sent 10@0 polled 20@1; 2 ok txn sent 20@1 polled 10@0",
            "1 invoke txn 1; 2 invoke txn 2; 3 invoke txn 3; 1 ok txn polled 3@2; 2 ok txn polled 1@0; 3 ok txn polled 2@1",
        ],
        [
            "1 invoke txn sent 10; 2 invoke txn sent 20; 1 ok txn sent 10@0; 2 ok txn sent 20@1 polled 10@0",
            "1 ok send 10@0; 2 ok send 20@1; 1 ok poll 20@1; 2 ok poll 10@0",
            "1 invoke txn sent 10; 1 ok txn sent 10@0 polled 10@0",
        ],
    ),
    "G1c-process": (
        [
            "2 invoke poll; 2 ok poll 10@0; 2 invoke send 20; 1 ok poll 20@1; 1 invoke send 10; 1 ok send 10@0",
            "1 ok poll 10@0; 1 invoke send 10; 1 ok send 10@0",
            "1 ok poll 30@0; 1 ok send 10@1; 2 ok poll 10@1; 2 ok send 20@2; 3 ok poll 20@2; 3 ok send 30@0",
        ],
        [
            "1 ok send 10@0; 1 ok poll 10@0",
            "1 ok send 10@0; 2 ok poll 10@0; 2 ok send 20@1; 1 ok poll 20@1",
            "1 invoke send 10; 2 ok poll 10@0; 2 ok send 20@1; 1 ok send 10@0; 1 ok poll 20@1",
        ],
    ),
    "G1c-realtime": (
        [
            "2 ok poll 10@0; 1 invoke send 10; 1 ok send 10@0",
            "2 ok poll 10@0; 3 ok poll; 4 invoke send 40; 1 invoke send 10; 1 info crash",
            "1 invoke send 1; 1 ok send 1@0; 2 ok poll 1@0 10@1; 3 invoke send 10; 3 ok send 10@1",
        ],
        [
            "1 invoke send 10; 2 ok poll 10@0; 1 ok send 10@0",
            "1 invoke send 10; 1 info crash; 2 ok poll 10@0",
            "2 invoke poll; 1 invoke send 10; 1 ok send 10@0; 2 ok poll 10@0",
        ],
    ),
}  # fmt: skip

POSITIVE = [(kind, text) for kind, (texts, _) in TABLE.items() for text in texts]
NEGATIVE = [(kind, text) for kind, (_, texts) in TABLE.items() for text in texts]


@pytest.mark.parametrize(("kind", "text"), POSITIVE)
def test_an_anomaly_is_found(kind: str, text: str) -> None:
    assert kind in check(history(text)).counts


@pytest.mark.parametrize(("kind", "text"), NEGATIVE)
def test_what_is_nearly_an_anomaly_is_none(kind: str, text: str) -> None:
    assert kind not in check(history(text)).counts


def test_every_kind_has_three_histories_of_each_sort() -> None:
    assert set(TABLE) == set(KINDS)
    assert all(len(found) >= 3 and len(not_found) >= 3 for found, not_found in TABLE.values())


@pytest.mark.slow
def test_generated_histories_of_a_right_log_have_no_anomaly(seed: int) -> None:
    happened: set[str] = set()
    for number in range(1000):
        operations = Player(seed + number, steps=40).operations
        verdict = check(operations)
        assert verdict.ok, f"seed {seed + number}: {verdict}"
        happened |= {operation.type for operation in operations} | {operation.f for operation in operations}
    assert happened == {"invoke", "ok", "fail", "info", "send", "begin", "txn", "poll", "assign", "delete", "crash"}


@pytest.mark.slow
@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.__name__)
@pytest.mark.one_in(8)
def test_one_defect_in_a_clean_history_is_always_caught(defect: Defect, seed: int) -> None:
    tried = 0
    for number in range(200):
        operations = Player(seed + number, steps=40).operations
        wrong = defect(operations, random.Random(seed + number))
        if wrong is not None:
            tried += 1
            assert not check(wrong).ok, f"seed {seed + number}: {defect.__doc__}"
    assert tried >= 30


def test_a_verdict_says_how_much_there_was_and_what_is_wrong_and_what_is_only_unusual() -> None:
    verdict = check(
        history("1 invoke send 10 11; 1 ok send 10@0 11@2; 2 ok poll 10@0; 3 fail send 12; 2 ok poll 11@2 12@3")
    )
    assert verdict[2:6] == (5, 2, 1, 3)
    assert (verdict.ok, verdict.anomalies) == (False, 1)
    assert str(verdict).splitlines() == [
        "5 operations, 2 records acknowledged, 1 refused, 3 read; worst lag 0.000 s; 1 anomalies",
        "1 aborted-read",
        "1 int-send-skip (allowed)",
        "aborted-read: t: value 12 was read at offset 3, though its send failed",
    ]


def test_the_worst_lag_is_that_of_an_acknowledged_record_when_it_was_polled_for_in_vain() -> None:
    late = "1 ok send 10@0 11@1 T=1; 2 ok assign @0 T=2; 2 ok poll 10@0 T=4; 2 ok poll 11@1 T=5"
    assert check(history(late)).lag_max_s == 1.0
    assert check(history("1 ok send 10@0 T=1; 2 ok assign @0 T=2; 2 ok poll 10@0 T=4")).lag_max_s == 0.0


def test_a_long_list_is_cut_and_counted() -> None:
    records = " ".join(f"?@{offset}" for offset in range(100))
    verdict = check(history(f"2 ok poll {records}"))
    assert verdict.counts == {"corrupt-value": 100}
    assert len(verdict.shown) == 20


def test_the_command_line_prints_the_verdict_and_answers_by_its_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for text, status in (("1 ok send 10@0; 2 ok poll 10@0", 0), ("1 ok send 10@0; 2 ok poll 11@0", 1)):
        write_history(tmp_path / "history", history(text))
        monkeypatch.setattr("sys.argv", ["checker", str(tmp_path / "history")])
        assert main() == status
        assert capsys.readouterr().out == f"{check(read_history(tmp_path / 'history'))}\n"


@pytest.mark.parametrize("content", [None, "{}\n", "no JSON\n"])
def test_a_file_that_is_no_history_is_said_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], content: str | None
) -> None:
    path = tmp_path / "history"
    if content is not None:
        path.write_text(content)
    monkeypatch.setattr("sys.argv", ["checker", str(path)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert str(path) in capsys.readouterr().err
