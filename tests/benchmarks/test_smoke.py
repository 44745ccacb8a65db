"""Every workload runs, tiny: none rots. How fast anything is, no test asks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks import report
from benchmarks.__main__ import SMOKE_SHARE, main
from benchmarks.plot import draw
from benchmarks.rounds import Result, Spread, run
from benchmarks.settings import Scale
from benchmarks.workload import Contender, Figure, Measure, Value, Workload
from benchmarks.workloads import WORKLOADS

SLOW_TO_START = ("Kafka",)  # a broker in Java takes ten seconds


def tiny(name: str, directory: Path, without: tuple[str, ...] = SLOW_TO_START) -> Result:
    return run(WORKLOADS[name], directory, Scale(SMOKE_SHARE), 1, without=without)


@pytest.mark.processes
@pytest.mark.parametrize("name", WORKLOADS)
def test_every_workload_measures_what_its_figures_ask(name: str, tmp_path: Path) -> None:
    result = tiny(name, tmp_path)
    assert result.rounds == 1
    ours = [contender.name for contender in result.workload.contenders if contender.name not in result.missing]
    assert list(result.samples)
    assert set(result.samples) == set(ours)
    assert all(value >= 0 for samples in result.samples.values() for value in samples[0].values())
    for figure in result.workload.figures:
        assert result.spread(figure) is not None
    assert all(contender.settings in report.measured(result) for contender in result.workload.contenders
               if contender.name in ours)  # fmt: skip
    draw([result], tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.soak
@pytest.mark.parametrize("name", ["append_send", "consume"])
def test_a_kafka_broker_runs_beside_pylog(name: str, tmp_path: Path) -> None:
    result = tiny(name, tmp_path, without=())
    assert result.samples["Kafka"][0]["records_per_s"] > 0


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
    listed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in listed] == list(WORKLOADS)
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
