"""The JVM's side of the planner: each question gets its own answer, whatever the process does, or
an error in time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.spark.jvm.verdicts import JavaProcess

pytestmark = pytest.mark.processes

PLANNER = f"""#!{sys.executable}
import os, struct, sys, time

frame = struct.Struct(">qi")
with open(sys.argv[0] + ".pid", "w") as file:
    file.write(str(os.getpid()))
if sys.argv[0].endswith("deaf"):
    time.sleep(600)
while head := sys.stdin.buffer.read(frame.size):
    number, length = frame.unpack(head)
    question = sys.stdin.buffer.read(length)
    answer = question + b" by %d" % os.getpid()
    if question == b"noise":
        os.write(1, b"hello, world\\n")
    if question == b"hang":
        time.sleep(600)
    if question == b"half":
        os.write(1, frame.pack(number, 100) + answer)
        sys.exit("tired")
    if question == b"more than the heap":
        os.write(1, frame.pack(number, 200 << 20))
    if question == b"another's":
        number -= 1
    os.write(1, frame.pack(number, len(answer)) + answer)
"""
Ask = Callable[..., str]


@pytest.fixture(scope="module")
def questions(classes: Path) -> Iterator[JavaProcess]:
    with closing(JavaProcess(classes, "pylog.spark.Questions", heap="100m")) as java:
        yield java


@pytest.fixture
def ask(questions: JavaProcess, tmp_path: Path) -> Ask:
    def ask(question: str, planner: str = "planner", limit_s: int = 100, interrupted_s: int = 100) -> str:
        path = tmp_path / planner
        if not path.exists():
            path.write_text(PLANNER)
            path.chmod(0o700)
        questions.put_line(f"{path} {limit_s} {interrupted_s} {question}")
        return questions.answer()

    return ask


def process_of(answer: str, question: str) -> int:
    kind, _, pid = answer.rpartition(" by ")
    assert kind == f"answer {question}", answer
    return int(pid)


def test_a_process_answers_many_questions(ask: Ask) -> None:
    assert process_of(ask("one"), "one") == process_of(ask("two"), "two")


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("noise", "its stdout has something other than an answer"),
        ("another's", "its stdout has something other than an answer"),
        ("half", "cannot run: tired"),
        ("more than the heap", "answer was not read: java.lang.OutOfMemoryError"),
    ],
)
def test_after_a_bad_answer_the_next_question_asks_another_process(ask: Ask, question: str, text: str) -> None:
    before = process_of(ask("good"), "good")
    refused = ask(question)
    assert refused.startswith("refused false ")
    assert text in refused
    assert process_of(ask("good"), "good") != before
    assert process_of(ask("better"), "better") != before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("planner", "question"), [("planner", "hang"), ("deaf", "hang"), ("deaf", "more than a pipe holds " * 10_000)]
)
def test_a_planner_that_hangs_is_ended(ask: Ask, tmp_path: Path, planner: str, question: str) -> None:
    late = ask(question, planner, limit_s=1)
    assert late.startswith("refused false the planner has not answered for 1 s, and was ended.")
    assert "set spark.pylog.plannerTimeout" in late
    interrupted = ask(question, planner, interrupted_s=1)
    assert interrupted == "refused true the query was interrupted before it was planned"
    assert not is_running(tmp_path / planner)
    process_of(ask("good", "another"), "good")


def is_running(planner: Path) -> bool:
    return Path("/proc", Path(f"{planner}.pid").read_text()).exists()
