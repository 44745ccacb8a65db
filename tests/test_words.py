"""The documentation and the source use plain words: phrases that readers stumble over, and what to
write instead.

The whole text counts: docstrings, comments, messages and examples. A phrase may continue on the
next line. In the source the names count too: a word of one must not be a metaphor that was once
used here.
"""

from __future__ import annotations

import functools
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.findings import expect_none

PROJECT = Path(__file__).parents[1]
ROOTS = (
    *("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "docs/*.md", "benchmarks/**/*.md"),
    *("src/**/*.py", "src/**/*.p[yx][xi]", "src/**/*.java", "examples/**/*.py", "examples/**/*.md", "scripts/*"),
)
# rooms of src/pylog that are not checked yet
OPEN = ()


class Rule(NamedTuple):
    """A phrase, as words with one blank in between, what to write, and a sentence that breaks the
    rule."""

    phrase: str
    instead: str
    wrong: str


RULES = [
    Rule("anew", "again, or re-: reopen, recreate", "The key is hashed anew."),
    Rule("who(m)?(so)?ever", "name the actor: the next writer, the caller", "Whoever comes next repairs it."),
    Rule("(for|to|by|of) who", "name the actor", "It is written down for who goes on."),
    Rule("(some|no)body", "name the actor, or use the passive voice", "Nobody has written since."),
    Rule("where (nothing|none) is known", "if it is unknown", "The time is -1 where nothing is known."),
    Rule("(is|are|was|were) none of", "is not one of", "The file is none of ours."),
    Rule("loss(es)? of power", "power failure", "It survives the loss of power."),
    Rule("the medium", "the disk", "The record is on the medium."),
    Rule("in the midst of", "during, within", "A kill in the midst of an append."),
    Rule("for ever", "forever", "The consumer waits for ever."),
    Rule(
        "behind (damage|what|the (last|published|durable|end|header|magic|attributes))",
        "after",
        "It reads on behind damage.",
    ),
    Rule("(let alone|lest|whence|thereby|heretofore)", "plain words", "It stays, lest it be lost."),
    Rule("is there no more", "is gone, was removed", "The topic is there no more."),
    Rule("so many (of|bytes|records)", "a number of, that many", "It reads so many records."),
    Rule("come(s)? back with the power", "is there after a restart", "What comes back with the power is kept."),
    Rule("with the power", "in a power failure", "The record is lost with the power."),
    Rule("(go|goes|going|went) on", "continue, resume", "The next writer goes on there."),
    Rule("pass(es|ed|ing)? over", "skip", "Readers pass over the marker."),
    Rule("(from|of|to) afar", "from another machine", "Nothing is fetched from afar."),
    Rule("accuse(s|d)?", "is evidence of damage in", "The seal accuses the segment."),
    Rule("(least|greatest) number there is", "INT64_MIN, INT64_MAX", "The time is the least number there is."),
    Rule("in (his|her|its|their) hands", "that holds the lock", "It stopped with the lock in its hands."),
    Rule("when all goes well", "on success", "It is kept only when all goes well."),
]


class Name(NamedTuple):
    """What to write instead of some words of a name, or with ``^`` of a whole name, and such a
    name.

    The pattern is for words in small letters with ``_`` in between, or for the name without ``_``
    before it.
    """

    words: str
    instead: str
    wrong: str


NAMES = [
    Name("lane(s)?", "the assigned partition", "_PausedLane"),
    Name("(?<!in_)flight(s)?", "a chunk of an iteration", "FlightLog"),
    Name("(land(ed)?|take_off)", "give back, begin", "take_off"),
    Name("distrust(s|ed)?", "failed sync", "is_distrusted"),
    Name("fate(s)?", "outcome", "RecordFate"),
    Name("anew", "again, or re-: reopen, reload", "look_anew"),
    Name("(some|no)body", "name the actor", "NOBODY_WROTE"),
    Name("who(m)?(so)?ever", "name the actor", "whoever_locks"),
    Name("sole_use", "single thread", "SoleUse"),
    Name("salvage(d|s)?", "resync", "_salvaged"),
    Name("hurry", "flush, write now", "hurry_up"),
    Name("block_times", "least and greatest timestamps", "BlockTimes"),
    Name("pass_over", "skip, verify", "pass_over"),
    Name("haul", "chunk", "haul_bytes"),
    Name("^Place$", "bounds, directory, position, index", "_Place"),
    Name("^Form$", "format", "Form"),
    Name("^Load$", "the request", "Load"),
    Name("^Memory$", "the buffer pool", "Memory"),
    Name("^Growth$", "what it does", "Growth"),
    Name("^Told$", "what was reported", "Told"),
    Name("^(enter|enter_many)$", "append, try_append", "enter_many"),
]


@functools.cache
def pattern(rule: Rule) -> re.Pattern[str]:
    """Whole words, in upper or lower case, with any blanks, line ends and marks of a comment in
    between."""
    return re.compile(r"\b" + rule.phrase.replace(" ", r"[\s#*>]+") + r"\b", re.IGNORECASE)


def documents() -> list[Path]:
    found = [path for root in ROOTS for path in sorted(PROJECT.glob(root)) if path.is_file()]
    assert len(found) > len(ROOTS)
    return [path for path in found if not any(path.is_relative_to(PROJECT / "src/pylog" / room) for room in OPEN)]


def findings(text: str, name: str = "text") -> Iterator[str]:
    for rule in RULES:
        for match in pattern(rule).finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            yield f"{name}:{line}: {match[0]!r}; write: {rule.instead}"


def words_of(name: str) -> str:
    """``PendingLane`` and ``_PENDING_LANE`` as ``pending_lane``."""
    return "_".join(re.findall("[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+", name)).lower()


@functools.cache
def broken_rules(found: str) -> list[Name]:
    def breaks(rule: Name) -> bool:
        text = found.removeprefix("_") if rule.words.startswith("^") else words_of(found)
        return re.search(f"(?:^|_)(?:{rule.words})(?:_|$)", text) is not None

    return [rule for rule in NAMES if breaks(rule)]


def findings_in_names(source: str, name: str = "text") -> Iterator[str]:
    if not any(map(broken_rules, re.findall(r"\w+", source))):
        return  # which takes less time than to tell names from words of texts
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.NAME:
            for rule in broken_rules(token.string):
                yield f"{name}:{token.start[0]}: {token.string}; write: {rule.instead}"


@pytest.mark.parametrize("document", [pytest.param(path, id=str(path.relative_to(PROJECT))) for path in documents()])
def test_a_document_or_a_source_file_uses_plain_words(document: Path) -> None:
    text, name = document.read_text(), str(document.relative_to(PROJECT))
    is_of_the_package = document.is_relative_to(PROJECT / "src") and document.suffix in (".py", ".pyx", ".pxi")
    names = findings_in_names(text, name) if is_of_the_package else []  # an example may be about flights
    expect_none([*findings(text, name), *names], "These words are in RULES and NAMES of tests/test_words.py")


@pytest.mark.parametrize("rule", [pytest.param(rule, id=rule.wrong) for rule in RULES])
def test_every_rule_finds_the_sentence_that_breaks_it(rule: Rule) -> None:
    broken = f"A good line.\n{rule.wrong}\n"
    assert [finding for finding in findings(broken) if finding.startswith("text:2:") and rule.instead in finding]
    wrapped = rule.wrong.replace(" ", "\n")
    assert any(rule.instead in finding for finding in findings(wrapped))


@pytest.mark.parametrize("rule", [pytest.param(rule, id=rule.wrong) for rule in NAMES])
def test_every_rule_of_names_finds_the_name_that_breaks_it(rule: Name) -> None:
    source = f"def good() -> None:\n    {rule.wrong} = 1  # a comment\n"
    assert list(findings_in_names(source)) == [f"text:2: {rule.wrong}; write: {rule.instead}"]


def test_names_with_longer_words_and_words_of_texts_are_let_through() -> None:
    source = "in_flight = landscape = place = __enter__ = reload = 'the lane'  # a lane\nclass Planet: ...\n"
    assert list(findings_in_names(source)) == []


def test_longer_words_and_plain_sentences_are_let_through() -> None:
    plain = (
        "The renewed, mediumship-like and nonetheless plain word stays. A consumer is 5 records behind. Is it there?"
    )
    assert list(findings(plain)) == []
