"""Puts bugs into pylog on purpose, for checks that must find them."""

from __future__ import annotations

import random
from collections.abc import Callable
from inspect import signature
from typing import Any


def put(owner: Any, name: str, wrong: Callable[..., Any]) -> None:
    """Replace a function by a wrong one, which can be called as the right one is: else its
    ``TypeError`` would be found instead of the bug."""
    takes, is_given = list(signature(wrong).parameters), list(signature(getattr(owner, name)).parameters)
    assert {"arguments", "options"} & {*takes} or takes == is_given, f"{owner} {name} has changed"
    setattr(owner, name, wrong)


def now_and_then(share: float = 0.05) -> bool:
    return random.random() < share
