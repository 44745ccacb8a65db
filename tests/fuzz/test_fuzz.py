"""Every reader gets hostile input in every change; ``scripts/fuzz`` does the same for as long as
one likes."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pylog.codec.batch import BatchView, check_header, read_header
from pylog.errors import CorruptRecord, PylogError
from pylog.segment.seal import decode
from tests.fuzz import corpus, directories, engine, native, soak
from tests.fuzz.__main__ import fuzz, main
from tests.fuzz.scratch import Scratch, left_in
from tests.fuzz.target import Target, shape_of
from tests.fuzz.targets import TARGETS

pytestmark = pytest.mark.processes  # both codecs are in every run: once is enough
COMPILED = {"records": 2000, "batch": 3000}  # in a process of their own, which may die of native code
EXECUTIONS = {"reader": 500, "offset-index": 300, "time-index": 300, "seal": 800, "scan": 800}


def found_nothing(report: engine.Report) -> bool:
    """Prints what was found, with the command that runs it again."""
    for finding in report.findings:
        print(json.dumps(finding, indent=2))
    return report.findings == []


def test_the_compiled_decoder_takes_a_hundred_thousand_mutants(seed: int, tmp_path: Path) -> None:
    report = fuzz(engine.NATIVE, 1e9, 100_000, seed, tmp_path)
    assert found_nothing(report)
    assert report.executions >= 100_000
    assert report.values > 1000


@pytest.mark.parametrize("target", COMPILED)
def test_both_codecs_say_the_same_of_mutants(target: str, seed: int, tmp_path: Path) -> None:
    report = fuzz(target, 1e9, COMPILED[target], seed, tmp_path)
    assert found_nothing(report)
    assert report.executions >= COMPILED[target]


@pytest.mark.slow
@pytest.mark.parametrize("target", [name for name in TARGETS if name not in COMPILED])
def test_mutants_are_read_or_named(target: str, seed: int, tmp_path: Path) -> None:
    order = engine.Order(
        target, seed, 1e9, EXECUTIONS.get(target, 1500), tmp_path / "scratch", tmp_path, own_process=False
    )
    report = engine.run(order)
    assert found_nothing(report)
    assert report.executions >= order.executions


@pytest.mark.slow
def test_damaged_directories_are_read_or_named(seed: int, tmp_path: Path) -> None:
    report = fuzz(directories.NAME, 1e9, 200, seed, tmp_path)
    assert found_nothing(report)
    assert report.executions == 200


@pytest.mark.parametrize("target", TARGETS)
def test_what_was_kept_is_read_or_named(target: str, tmp_path: Path) -> None:
    assert corpus.kept(target)
    scratch = Scratch(tmp_path / "scratch")
    with engine.quiet():
        for data in corpus.pool_of(target):
            TARGETS[target].verdict(data)
            if target == "records":
                native.once(data, scratch)


def test_the_corpus_is_small_and_of_known_targets() -> None:
    files = [path for path in corpus.CORPUS.rglob("*") if path.is_file()]
    assert {path.parent.name for path in files} <= {*TARGETS}
    assert sum(path.stat().st_size for path in files) < 300_000


def test_a_soak_counts_and_finds_nothing(seed: int) -> None:
    figures, problems = soak.run(0.0, seed, (engine.NATIVE, "slots", directories.NAME))
    assert problems == []
    assert set(figures) == {engine.NATIVE, "slots", directories.NAME}
    assert all(figures.values())


# That it would find something


@pytest.mark.parametrize(
    "error", [IndexError("out of range"), MemoryError(), RecursionError("deep"), OSError("no type")]
)
def test_any_other_error_is_a_finding_with_its_input_and_a_command(
    error: Exception, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(data: bytes) -> str:
        if len(data) % 3 == 0:
            raise error
        raise CorruptRecord("as it should be")

    monkeypatch.setitem(TARGETS, "slots", Target(broken, lambda: [b"abcd", b"abcdefg"]))
    order = engine.Order("slots", 1, 1e9, 200, tmp_path / "scratch", tmp_path / "found", own_process=False)
    (finding,) = engine.run(order).findings
    assert finding["problem"].startswith(type(error).__name__)
    path = Path(finding["input"])
    assert len(path.read_bytes()) % 3 == 0
    assert finding["again"] == f"scripts/fuzz --target slots --replay {path}"
    with pytest.raises(type(error)):
        main(["--target", "slots", "--replay", str(path)])
    path.write_bytes(b"mend")
    assert main(["--target", "slots", "--replay", str(path)]) == 0
    assert "as it should be" in capsys.readouterr().out


def test_a_decoder_that_differs_is_a_finding(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from tests.fuzz import record_targets

    class Lax(record_targets.readable.RecordDecoder):
        def skip_to(self, offset: int) -> None:
            super().skip_to(offset - 1)

    monkeypatch.setattr(record_targets.readable, "RecordDecoder", Lax)
    order = engine.Order("records", 1, 1e9, 200, tmp_path / "scratch", tmp_path, own_process=False)
    assert "skip" in engine.run(order).findings[0]["problem"]


def test_a_read_behind_the_end_kills_and_leaves_its_input(tmp_path: Path) -> None:
    script = (
        "import ctypes, sys; from pathlib import Path; from tests.fuzz.scratch import Scratch\n"
        "view = Scratch(Path(sys.argv[1])).lay_down(b'head', b'payload')\n"
        "ctypes.string_at(ctypes.addressof(ctypes.c_char.from_buffer(view)), 8)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path / "scratch")], env=environment(), check=False)
    assert done.returncode == -signal.SIGSEGV
    assert left_in(tmp_path / "scratch") == b"headpayload"


def environment() -> dict[str, str]:
    import os

    return os.environ | {"PYTHONPATH": os.pathsep.join([path for path in sys.path if path] + [os.getcwd()])}


def test_a_process_that_dies_is_a_finding(tmp_path: Path) -> None:
    report = fuzz("no such target", 1.0, 1, 0, tmp_path)
    assert "the process ended with 1" in report.findings[0]["problem"]


def test_a_seed_makes_the_same_mutants_again() -> None:
    for target in TARGETS.values():
        pool = [*map(bytes, target.seeds())]
        first, again, other = (target.mutator(random.Random(seed), pool) for seed in (1, 1, 2))
        made = [first.mutant() for _ in range(20)]
        assert made == [again.mutant() for _ in range(20)]
        assert made != [other.mutant() for _ in range(20)]


def test_most_mutants_pass_the_checksum(seed: int) -> None:
    """Else the fuzzer would do nothing but test CRC-32C."""
    batches = TARGETS["batch"].mutator(random.Random(seed), corpus.pool_of("batch"))
    seals = TARGETS["seal"].mutator(random.Random(seed), corpus.pool_of("seal"))
    passed = sum(_crc_is_right(batches.mutant()) for _ in range(500))
    assert passed > 150
    assert sum(_is_read_beyond_checksum(seals.mutant()) for _ in range(500)) > 60


def _crc_is_right(data: bytes) -> bool:
    try:
        header = read_header(data)
        if check_header(header) is not None:
            return False
        BatchView(data, header).check_crc()
    except CorruptRecord:
        return False
    return True


def _is_read_beyond_checksum(data: bytes) -> bool:
    try:
        decode(data, "")
    except PylogError as error:
        return "says what no segment" in str(error)
    return True


def test_words_have_one_shape_whatever_their_numbers() -> None:
    assert shape_of("x.log: offset 17 at 0x3f, expected -1 of 'a\\'b'") == shape_of(
        "x.log: offset 2 at -0x1, expected 5 of b'c'"
    )
