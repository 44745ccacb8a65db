"""What a program that forgets to close its producer leaves in the log: everything."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from pylog.log import Log

pytestmark = pytest.mark.processes

START = """
import atexit, multiprocessing, os, signal, sys, threading
from pylog.log import Log
from pylog.producer import Producer
log = Log(sys.argv[1])
producer = Producer(log, linger_ms=60_000)
"""


def values_after(program: str, path: Path, status: int = 0) -> list[bytes]:
    with Log(path) as log:
        log.create_topic("t")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", START + textwrap.dedent(program), str(path)],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stderr if status == 0 else "") == (status, "")
    with Log(path) as log:
        return [record.value for record in log.partition("t", 0).scan()]


def test_a_program_that_ends_without_close_loses_nothing(tmp_log_dir: Path) -> None:
    assert values_after("producer.send('t', b'v')", tmp_log_dir) == [b"v"]


def test_a_program_that_fails_loses_nothing(tmp_log_dir: Path) -> None:
    assert values_after("producer.send('t', b'v'); raise SystemExit(3)", tmp_log_dir, status=3) == [b"v"]


def test_a_producer_dropped_before_the_end_loses_nothing(tmp_log_dir: Path) -> None:
    assert values_after("producer.send('t', b'v'); del producer, log", tmp_log_dir) == [b"v"]


def test_what_other_exit_handlers_send_is_written_whether_they_run_before_or_after(tmp_log_dir: Path) -> None:
    program = """
    atexit.register(lambda: producer.send('t', b'registered later, runs first'))
    """
    assert values_after(program, tmp_log_dir) == [b"registered later, runs first"]


def test_what_is_sent_after_the_final_flush_is_written_by_the_send_itself(tmp_log_dir: Path) -> None:
    program = """
    from pylog.producer.linger import LINGER
    producer.send('t', b'1')
    LINGER.flush_all()
    assert producer.send('t', b'2').done()
    """
    assert values_after(program, tmp_log_dir) == [b"1", b"2"]


def test_a_send_interrupted_before_anybody_looks_after_its_batch_loses_nothing(tmp_log_dir: Path) -> None:
    program = """
    def interrupted(*_): raise KeyboardInterrupt
    producer._accumulator._look_after = interrupted
    try:
        producer.send('t', b'1')
    except KeyboardInterrupt:
        producer.send('t', b'2')
    """
    assert values_after(program, tmp_log_dir) == [b"1", b"2"]


def test_a_thread_that_still_sends_at_the_end_is_waited_for(tmp_log_dir: Path) -> None:
    program = """
    def send():
        threading.main_thread().join()
        producer.send('t', b'from a thread')
    threading.Thread(target=send).start()
    """
    assert values_after(program, tmp_log_dir) == [b"from a thread"]


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_multiprocessing_child_that_forgets_to_close_loses_nothing(
    tmp_log_dir: Path, method: str, tmp_path: Path
) -> None:
    program = f"""
    def child(path):
        Producer(Log(path), linger_ms=60_000).send('t', b'from the child')
    if __name__ == '__main__':
        import runpy
        worker = multiprocessing.get_context({method!r}).Process(target=child, args=(sys.argv[1],))
        worker.start(); worker.join()
        sys.exit(worker.exitcode)
    """
    script = tmp_path / "program.py"
    script.write_text(START.replace("log = Log(sys.argv[1])\nproducer = Producer(log, linger_ms=60_000)\n", "")
                      + textwrap.dedent(program))  # fmt: skip
    with Log(tmp_log_dir) as log:
        log.create_topic("t")
    done = subprocess.run([sys.executable, str(script), str(tmp_log_dir)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    with Log(tmp_log_dir) as log:
        assert [record.value for record in log.partition("t", 0).scan()] == [b"from the child"]


def test_a_forked_child_that_ends_normally_loses_nothing_and_writes_nothing_of_the_parents(tmp_log_dir: Path) -> None:
    program = """
    producer.send('t', b'parent')
    if os.fork() == 0:
        producer.send('t', b'child')
        sys.exit()
    os.wait()
    """
    assert sorted(values_after(program, tmp_log_dir)) == [b"child", b"parent"]
