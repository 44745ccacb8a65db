"""Every workload runs, tiny: none rots. How fast anything is, no test asks."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import report
from benchmarks.__main__ import SMOKE_SHARE, main
from benchmarks.options import parse
from benchmarks.plot import draw, problem_of
from benchmarks.rounds import Result, Spread, run
from benchmarks.settings import Scale
from benchmarks.workload import Contender, Figure, Measure, Value, Workload
from benchmarks.workloads import WORKLOADS
from benchmarks.workloads.spark_broker import session_with_jars
from tests.conftest import java_problem

BESIDE_A_BROKER = ("spark_kafka", "spark_write", "spark_batches")
ON_SPARK = ("spark", "spark_stream", *BESIDE_A_BROKER)
ONE_ROUND = ("spark", "spark_kafka", "spark_stream")  # which only read, half a minute each: none to warm up
READER = "pylog-jvm"  # only where its jar has been built
SLOW_TO_START = ("Kafka", "Chronicle Queue")  # programs in Java take ten seconds, and their jars come from Maven


def tiny(name: str, directory: Path, without: tuple[str, ...] = SLOW_TO_START) -> Result:
    workload = WORKLOADS[name]
    if name in ONE_ROUND:
        workload = replace(workload, rounds_max=1)
    return run(workload, directory, Scale(SMOKE_SHARE), 1, without=without)


@pytest.fixture(scope="module")
def one_session() -> Iterator[None]:
    """For all workloads on Spark: each would start a session of its own, and a new JVM is slow
    until its code is compiled."""
    if problem := java_problem():
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(problem)
    with session_with_jars():
        yield


@pytest.mark.parametrize("name", BESIDE_A_BROKER)
def test_beside_a_broker_each_contender_has_a_session_with_the_jars(name: str) -> None:
    """Alone, too: here one session is for all."""
    module = importlib.import_module(f"benchmarks.workloads.{name}")
    assert not hasattr(module, "session")
    assert module.session_with_jars is session_with_jars


@pytest.mark.one_in(8)
@pytest.mark.processes
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.engine, pytest.mark.timeout(600)] if name in ON_SPARK else ())
        for name in WORKLOADS
    ],
)
def test_every_workload_measures_what_its_figures_ask(
    name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if name in ON_SPARK:
        request.getfixturevalue("one_session")
    result = tiny(name, tmp_path, without=() if name in BESIDE_A_BROKER else SLOW_TO_START)
    assert result.rounds == 1
    ours = [contender.name for contender in result.workload.contenders if contender.name not in result.missing]
    assert list(result.samples)
    assert set(result.samples) == set(ours)
    assert all(value >= 0 for samples in result.samples.values() for value in samples[0].values())
    for figure in result.workload.figures:
        assert result.spread(figure) is not None or READER in result.missing
    if name in BESIDE_A_BROKER:
        assert set(result.missing) <= {READER}
    assert all(contender.settings in report.measured(result) for contender in result.workload.contenders
               if contender.name in ours)  # fmt: skip
    if draw([result], tmp_path / "plot.png"):
        assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    else:
        assert problem_of(tmp_path / "plot.png", [result.workload])  # said so before the run


@pytest.mark.engine
@pytest.mark.parametrize("name", ["append_send", "consume"])
def test_rivals_in_java_run_beside_pylog(name: str, tmp_path: Path) -> None:
    result = tiny(name, tmp_path, without=())
    assert all(result.samples[rival][0]["records_per_s"] > 0 for rival in SLOW_TO_START), result.missing


def test_the_command_writes_tables_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "results.json"
    arguments = ["open", "--smoke", "--directory", str(tmp_path), "--output", str(output)]
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    assert "| `open` | fresh log, first record | ≤ 10 ms |" in printed
    written = json.loads(output.read_text())
    assert written["workloads"]["open"]["figures"][0]["title"] == "fresh log, first record"
    assert written["share_of_a_full_run"] == SMOKE_SHARE
    assert list(tmp_path.iterdir()) == [output]  # nothing is left of the logs
    assert main([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["workloads"].keys() == {"open"}


def test_the_command_lists_what_there_is_and_refuses_what_there_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    listed, _, rivals = capsys.readouterr().out.rpartition("\n\n")
    assert rivals.startswith("--without leaves out: LMDB, SQLite,")
    assert [line.split()[0] for line in listed.splitlines()] == list(WORKLOADS)
    with pytest.raises(SystemExit):
        main(["append_sent"])
    assert "there is no workload append_sent" in capsys.readouterr().err


def counting(values: list[float]) -> Contender:
    numbers = iter(values)

    @contextmanager
    def prepare(_place: Path, _scale: Scale) -> Iterator[Measure]:
        yield lambda: {"ms": next(numbers)}

    return Contender(str(len(values)), "given numbers", prepare)


def test_a_figure_is_the_median_of_ratios_round_by_round_without_the_first(tmp_path: Path) -> None:
    one, two = counting([99, 4, 9, 6]), counting([1, 2, 3, 1, 0])
    figure = Figure("a ratio", Value("4", "ms"), Value("5", "ms"), at_least=3)
    result = run(Workload("w", "s", (one, two), (figure,)), tmp_path, Scale(), 3)
    assert result.spread(figure) == Spread(3, 2, 6)
    assert figure.reached(3)
    assert not figure.reached(2.9)
    assert "| `w` | a ratio | ≥ 3.00x | 3.00x (2.00x to 6.00x) | reached |" in report.figures([result])


def failing(contender: Contender, error: BaseException) -> Contender:
    @contextmanager
    def prepare(place: Path, scale: Scale) -> Iterator[Measure]:
        with contender.prepare(place, scale) as measure:
            rounds = iter([measure, measure, measure])

            def limited() -> dict[str, float]:
                if (again := next(rounds, None)) is None:
                    raise error
                return again()

            yield limited

    return Contender(contender.name, contender.settings, prepare)


def test_an_interrupted_run_writes_the_rounds_that_were_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    contenders = counting([9, 8, 7, 6]), failing(counting([1, 2, 3, 4, 5]), KeyboardInterrupt())
    figure = Figure("a ratio", Value("4", "ms"), Value("5", "ms"), at_least=3)
    monkeypatch.setitem(WORKLOADS, "limits", Workload("limits", "s", contenders, (figure,)))
    output = tmp_path / "out.json"
    assert main(["limits", "open", "--rounds", "3", "--directory", str(tmp_path), "--output", str(output)]) == 130
    printed = capsys.readouterr()
    assert "interrupted" in printed.err
    assert "Traceback" not in printed.err
    written = json.loads(output.read_text())["workloads"]
    assert written.keys() == {"limits"}
    assert written["limits"]["samples"] == {"4": [{"ms": 8}, {"ms": 7}], "5": [{"ms": 2}, {"ms": 3}]}
    assert "| `limits` | a ratio | ≥ 3.00x | 3.17x (2.33x to 4.00x) | reached |" in printed.out
    assert list(tmp_path.iterdir()) == [output]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--output", "nowhere/x.json"], "--output nowhere/x.json: there is no directory nowhere"),
        (["--output", "."], "--output .: that is a directory"),
        (["--output", "closed.json"], "--output closed.json: it cannot be written"),
        (["--plot", "nowhere/x.png"], "--plot nowhere/x.png: there is no directory nowhere"),
        (["--plot", "x.pgn"], "--plot x.pgn: matplotlib writes no files of that name; name it x.png"),
        (["--plot", "plot"], "--plot plot: matplotlib writes no files of that name; name it plot.png"),
        (["--directory", "nowhere"], "--directory nowhere: not a directory that can be written to"),
        (["--without", "Oracle"], "--without Oracle: there is no such contender; there are the machine; "),
    ],
)
def test_what_could_only_fail_after_the_run_is_refused_before_it(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    if arguments[-1] == "closed.json":
        monkeypatch.setattr(os, "access", lambda *_: False)  # root may write anything
    with pytest.raises(SystemExit, match="2"):
        main(["open", *arguments])
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_plot_needs_matplotlib_and_something_to_draw(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["limits", "--plot", "x.png"])
    assert "--plot: there is nothing to draw of limits" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(SystemExit, match="2"):
        main(["open", "--smoke", "--plot", "x.png"])
    assert "not installed: pip install -r benchmarks/requirements.txt" in capsys.readouterr().err


@pytest.mark.slow
def test_results_that_cannot_be_written_in_the_end_are_drawn_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(path: Path, _: str) -> int:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(Path, "write_text", full)
    output, drawn = tmp_path / "x.json", tmp_path / "x.png"
    assert main(["open", "--smoke", "--output", str(output), "--plot", str(drawn)]) == 1
    assert f"error: --output {output}: No space left on device" in capsys.readouterr().err
    assert drawn.exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["append_send", "consume", "size"])
def test_a_run_without_rivals_is_drawn_if_anything_was_measured(name: str, tmp_path: Path) -> None:
    """The figures need the rivals; what was measured stands there without."""
    everybody = [contender.name for contender in WORKLOADS[name].contenders]
    lone = Result(WORKLOADS[name], {everybody[0]: [{"records_per_s": 1.0, "append_us": 1.0}]})
    assert draw([lone], tmp_path / "lone.png")
    assert (tmp_path / "lone.png").exists()
    assert not draw([Result(WORKLOADS[name], {})], tmp_path / "none.png")
    assert not (tmp_path / "none.png").exists()


def test_a_contender_is_left_out_by_its_name_in_any_case() -> None:
    assert parse(["consume", "--without", "lmdb", "--without", "redis STREAMS"], None).without == [
        "LMDB", "Redis Streams",
    ]  # fmt: skip


def test_a_smoke_run_gives_no_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["open", "--smoke", "--directory", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "reached" not in printed
    assert "a smoke run: its figures say that everything runs, and nothing about how fast" in printed


@pytest.mark.parametrize("package", ["lmdb", "redis"])
def test_a_rival_whose_package_is_missing_says_what_to_install(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    names = [contender.name for contender in WORKLOADS["consume"].contenders]
    others = tuple(name for name in names if not name.lower().startswith(package))
    result = tiny("consume", tmp_path, without=others)
    [name] = set(names) - set(others)
    assert result.missing[name] == (
        f"the Python package {package} is not installed (pip install -r benchmarks/requirements.txt)"
    )
