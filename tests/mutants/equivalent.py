"""Mutants made by rule that change nothing anybody could see, or nothing that is promised, each with the reason."""

from __future__ import annotations

EQUIVALENT: dict[tuple[str, str], str] = {}
