"""Kafka's dump tool reads what an erasure has left. Run by ``scripts/test --engines``."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from pylog import Log, Producer
from pylog.codec.format import CODEC_NAMES
from tests.engines.broker import classpath

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]


def test_kafka_s_dump_reads_what_is_left(tmp_path: Path) -> None:
    with Log(tmp_path / "log") as log:
        log.create_topic("t")
        for codec in CODEC_NAMES:
            with Producer(log, transactional_id=codec, compression=codec) as producer:
                producer.init_transactions()
                for number in range(3):
                    producer.begin_transaction()
                    for key in (b"person",) if number == 2 else (b"person", b"other"):
                        producer.send("t", b"value of " + key + b"-" * 200, key=key)
                    producer.flush()
                    producer.abort_transaction() if number == 1 else producer.commit_transaction()
        assert log.erase("t", b"person").records == 3 * len(CODEC_NAMES)
    files = sorted(map(str, (tmp_path / "log" / "t-0").glob("*.log")))
    command = [
        "java",
        "-cp",
        classpath(),
        "org.apache.kafka.tools.DumpLogSegments",
        "--deep-iteration",
        "--print-data-log",
    ]
    done = subprocess.run([*command, "--files", ",".join(files)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    batches = re.findall(r"^baseOffset: .* isvalid: (\w+)", done.stdout, re.MULTILINE)
    assert batches == ["true"] * 6 * len(CODEC_NAMES)
    assert len(re.findall("payload: value of other", done.stdout)) == 2 * len(CODEC_NAMES)
    assert "person" not in done.stdout
