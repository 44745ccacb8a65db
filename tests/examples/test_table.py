"""The example of examples/table, run small: a served table whose process is killed, and its own
check of all answers."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from http.client import HTTPConnection
from pathlib import Path

import pytest

import pylog
from pylog import Log, Producer
from tests.tables.scans import STORES

EXAMPLE = Path(__file__).parents[2] / "examples" / "table"


def figure(output: str, name: str) -> int:
    found = re.search(rf"^{name} +([\d,]+)", output, re.MULTILINE)
    assert found is not None, output
    return int(found[1].replace(",", ""))


@pytest.mark.processes
@pytest.mark.slow
@pytest.mark.parametrize("store", STORES)
@pytest.mark.one_in(4)
def test_every_answer_is_the_newest_state_however_often_the_server_is_killed(tmp_path: Path, store: str) -> None:
    command = [sys.executable, str(EXAMPLE / "run.py"), "--flights", "300", "--kills", "2", "--store", store]
    done = subprocess.run([*command, "--directory", str(tmp_path)], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout)
    assert figure(done.stdout, "wrong answers") == 0
    assert figure(done.stdout, "server killed") == 2
    assert figure(done.stdout, "flights sent") > 800
    assert figure(done.stdout, "requests answered") > figure(done.stdout, "aircraft") > 300


def test_the_server_answers_from_the_table_while_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLE)
    import serve

    with Log(tmp_path / "log", auto_create_topics=True) as log, Producer(log, acks=1) as producer:
        log.create_topic("aircraft")
        with pylog.table(log, "aircraft") as table, serve.server(table, 0) as server:
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
            thread.start()
            connection = HTTPConnection("127.0.0.1", server.server_address[1])

            def get(path: str) -> tuple[int, bytes]:
                connection.request("GET", path)
                answer = connection.getresponse()
                return answer.status, answer.read()

            assert get("/aircraft/N1") == (404, b"{}")
            for state in (b"{}1", b"{}2"):
                producer.send("aircraft", state, key=b"N1").result()
                assert get("/aircraft/N1") == (200, state)
            assert json.loads(get("/aircraft")[1])["aircraft"] == 1
            assert get("/else")[0] == 404
            connection.close()
            server.shutdown()
            thread.join()
