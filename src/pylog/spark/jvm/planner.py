"""The planner of ``format("pylog-jvm")``: a process of the driver's JVM, which ends with its stdin.

A question is a frame, and so is its answer: the question's number (8 bytes), a length (4 bytes),
JSON. If pylog refuses it, that is ``{"error": {"class": …, "message": …}}``. Any other exception
ends the process: the JVM reports what it has written to stderr.

    {"ask": "describe", "options": {…}}                 {"includeHeaders": …}
    {"ask": "filters", "filters": […]}                  {"left": [the numbers of those not handled]}
    {"ask": "plan", "options": {…}, "filters": […]}     {"tasks": [{"pieces": […], "sizeBytes": …}]}

A filter is ``{"kind", "column", "values", "negated"}``; a time in it is ``{"us": …}``, since 1970.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import closing
from struct import Struct
from typing import Any, BinaryIO

from pylog.errors import ConfigError, PylogError
from pylog.interrupts import own
from pylog.spark.jvm.pieces import Fields, Pieces
from pylog.spark.sink.options import SUPPORTED as OF_THE_SINK
from pylog.spark.source.directory import LogDirectory
from pylog.spark.source.filters import Condition, Microseconds, Wanted
from pylog.spark.source.options import SUPPORTED, TRUST_HEADERS, SourceOptions, boolean, without_properties
from pylog.spark.source.plan import plan
from pylog.spark.source.splits import coalesce

PROTOCOL = 1
FRAME = Struct(">qi")
QUESTION_BYTES_MAX = 16 << 20
ANSWER_BYTES_MAX = 256 << 20
_INSTEAD = 'format("pylog-jvm") cannot do it: use format("pylog")'


def serve(questions: BinaryIO, answers: BinaryIO) -> None:
    """Answer each question, until there are no more."""
    while head := questions.read(FRAME.size):
        number, length = FRAME.unpack(head)
        if not 0 <= length <= QUESTION_BYTES_MAX:
            raise ValueError(
                f"a question of {length} bytes: the limit is {QUESTION_BYTES_MAX}; is the jar of this pylog?"
            )
        found = answer(questions.read(length))
        answers.write(FRAME.pack(number, len(found)))
        answers.write(found)
        answers.flush()


def answer(question: bytes) -> bytes:
    """The answer to one question, both JSON."""
    try:
        found = json.dumps(_answer(json.loads(question))).encode()
        if len(found) > ANSWER_BYTES_MAX:
            raise ConfigError(
                f"the plan has {len(found)} bytes, more than {ANSWER_BYTES_MAX}; plan fewer tasks: with a "
                f'larger splitBytes or maxRecordsPerPartition, or a narrower range; or use format("pylog")'
            )
    except own(PylogError, OSError) as error:
        found = json.dumps({"error": {"class": type(error).__name__, "message": str(error)}}).encode()
    return found


def _answer(question: Fields) -> Fields:
    if question.get("protocol") != PROTOCOL:
        raise ConfigError(
            f"the jar asks by protocol {question.get('protocol')}, this pylog answers by {PROTOCOL}: use the jar of "
            "this version, pylog.spark.jar(), on driver and executors",
        )  # fmt: skip
    return _ANSWERS[question["ask"]](question)


def _describe(question: Fields) -> Fields:
    options = _options(question)
    LogDirectory(options.path)
    return {"includeHeaders": options.include_headers}


def _filters(question: Fields) -> Fields:
    return {"left": _wanted(question)[1]}


def _plan(question: Fields) -> Fields:
    options = _options(question)
    tasks = coalesce(plan(options, _wanted(question)[0]), options.splitting)
    with closing(Pieces()) as pieces:
        return {"tasks": [pieces.task(task) for task in tasks]}


_ANSWERS: dict[str, Callable[[Fields], Fields]] = {"describe": _describe, "filters": _filters, "plan": _plan}


def _options(question: Fields) -> SourceOptions:
    """The options. ``ConfigError`` also for those that the Java reader lacks."""
    given = without_properties({name.lower(): value for name, value in question["options"].items()})
    boolean(given, TRUST_HEADERS, default=True)  # for the Java reader, and checked here
    given.pop(TRUST_HEADERS.lower(), None)
    for option in OF_THE_SINK:
        if option.lower() in given and option not in SUPPORTED:
            raise ConfigError(f"option {option!r} is for writing: {_INSTEAD}", option=option)
    options = SourceOptions.parse(given)
    for option, is_set in (
        ("failOnDataLoss=false", not options.fail_on_data_loss),
        ("onCorruption=skip", options.skip_damage),
    ):
        if is_set:
            raise ConfigError(f"{option}: {_INSTEAD}", option=option.partition("=")[0])
    try:
        options.path.encode()
    except own(UnicodeEncodeError) as error:
        raise ConfigError(f"path={options.path!r} is no text: {_INSTEAD}", option="path") from error
    return options


def _wanted(question: Fields) -> tuple[Wanted, list[int]]:
    """What the filters want together, and the numbers of those that Spark must apply."""
    wanted, left = Wanted(), []
    for number, it in enumerate(question["filters"]):
        condition = Condition(it["kind"], it["column"], _values(it["values"]), it["negated"])
        wanted, is_done = wanted.and_of(condition)
        if not is_done:
            left.append(number)
    return wanted, left


def _values(given: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(Microseconds(value["us"]) if isinstance(value, dict) else value for value in given)
