"""What a target is: a reader of bytes, the right inputs its mutants come from, and how their
checksums are mended."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple

from pylog.errors import PylogError
from tests.fuzz.mutate import Fields, Mutation, Mutator, Repair, no_fields, nothing


class Broken(AssertionError):
    """A reader did what none may do: two of them disagree, or what came back was never written."""


class Target(NamedTuple):
    """``run`` returns in words what it made of the bytes, or raises a ``PylogError``; everything
    else is a finding."""

    run: Callable[[bytes], str]
    seeds: Callable[[], Sequence[bytes]]
    repair: Repair = nothing
    fields: Fields = no_fields
    inner: Mutation | None = None
    words: Sequence[bytes] = ()

    def mutator(self, chance: Random, pool: Sequence[bytes]) -> Mutator:
        """Of a pool that begins with the target's own right inputs."""
        return Mutator(
            chance,
            pool,
            repair=self.repair,
            fields=self.fields,
            inner=self.inner,
            words=self.words,
            right=len(self.seeds()),
        )

    def verdict(self, data: bytes) -> str:
        """What the target says of an input. Raises where that is a finding."""
        try:
            return self.run(data)
        except PylogError as error:
            return f"{type(error).__name__}: {error}"


_CHANGING = re.compile(
    r"b?'(?:[^'\\]|\\.)*(?:'|$)|b?\"(?:[^\"\\]|\\.)*(?:\"|$)|-?\b0x[0-9a-f]+|\b[0-9a-f]{6,}\b|-?[0-9]+"
)


def shape_of(verdict: str) -> str:
    """A verdict without its numbers and names: two inputs of one shape went much the same way."""
    return _CHANGING.sub("#", verdict[:1000])[:200]


def require(holds: object, claim: str) -> None:
    if not holds:
        raise Broken(claim)
