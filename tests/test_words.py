"""The documentation uses plain words: a short list of phrases that readers stumble over, and what to write instead.

The whole text counts, examples and their comments included. A phrase may go over the end of a line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

PROJECT = Path(__file__).parents[1]
ROOTS = ("README.md", "CONTRIBUTING.md", "docs/*.md")  # to check the source as well, add "src/**/*.py"


class Rule(NamedTuple):
    """A phrase, as words with one blank in between, what to write, and a sentence that breaks the rule."""

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
    Rule("behind (damage|the (last|published|durable))", "after", "It reads on behind damage."),
    Rule("(let alone|lest|whence|thereby|heretofore)", "plain words", "It stays, lest it be lost."),
    Rule("is there no more", "is gone, was removed", "The topic is there no more."),
    Rule("so many (of|bytes|records)", "a number of, that many", "It reads so many records."),
    Rule("come(s)? back with the power", "is there after a restart", "What comes back with the power is kept."),
]


def pattern(rule: Rule) -> re.Pattern[str]:
    """Whole words, in upper or lower case, with any blanks, line ends and marks of a comment in between."""
    return re.compile(r"\b" + rule.phrase.replace(" ", r"[\s#*>]+") + r"\b", re.IGNORECASE)


def documents() -> list[Path]:
    found = [path for root in ROOTS for path in sorted(PROJECT.glob(root))]
    assert len(found) > len(ROOTS)
    return found


def findings(text: str, name: str = "text") -> Iterator[str]:
    for rule in RULES:
        for match in pattern(rule).finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            yield f"{name}:{line}: {match[0]!r}; write: {rule.instead}"


@pytest.mark.parametrize("document", [pytest.param(document, id=document.name) for document in documents()])
def test_a_document_uses_plain_words(document: Path) -> None:
    assert list(findings(document.read_text(), str(document.relative_to(PROJECT)))) == []


@pytest.mark.parametrize("rule", [pytest.param(rule, id=rule.wrong) for rule in RULES])
def test_every_rule_finds_the_sentence_that_breaks_it(rule: Rule) -> None:
    broken = f"A good line.\n{rule.wrong}\n"
    assert [finding for finding in findings(broken) if finding.startswith("text:2:") and rule.instead in finding]
    wrapped = rule.wrong.replace(" ", "\n")
    assert any(rule.instead in finding for finding in findings(wrapped))


def test_longer_words_and_plain_sentences_are_let_through() -> None:
    plain = (
        "The renewed, mediumship-like and nonetheless plain word stays. A consumer is 5 records behind. Is it there?"
    )
    assert list(findings(plain)) == []
