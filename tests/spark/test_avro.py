"""The Avro recipe of docs/recipes.md, on what ``to_avro`` and pylog's sink have written, in both
formats."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.workload import MissingError
from benchmarks.workloads.spark_broker import module_of_spark
from tests.conftest import TESTS, jar_problem, java_problem
from tests.test_documentation import PROJECT, blocks

pytestmark = [pytest.mark.engine, pytest.mark.spark, pytest.mark.processes, pytest.mark.timeout(300)]

ROWS = [["costco", 400], ["ikea", 17]]
PROGRAM = """
import json, sys
from pyspark.sql import functions as f
from pyspark.sql.avro.functions import from_avro, to_avro
from benchmarks.workloads.spark_broker import module_of_spark, reader
from benchmarks.workloads.spark_session import session

path, rows = sys.argv[1], json.loads(sys.argv[2])
schema = json.dumps({"type": "record", "name": "order", "fields": [
    {"name": "customer", "type": "string"}, {"name": "amount", "type": "long"}]})
with session((*module_of_spark("spark-avro_2.13"), *reader())) as spark:
    frame = spark.createDataFrame(rows, "customer string, amount long")
    plain = frame.select(f.lit("plain").alias("topic"), to_avro(f.struct("customer", "amount"), schema).alias("value"))
    header = f.lit(bytes([0, 0, 0, 0, 1]))  # of Confluent's serializers: 0, and the schema's id in four bytes
    framed = plain.select(f.lit("framed").alias("topic"), f.concat(header, "value").alias("value"))
    sink = plain.union(framed).write.format("pylog").option("autoCreateTopics", True).mode("append")
    sink.save(path)
    for kind in ("pylog", "pylog-jvm"):
        for topic, decoding in zip(("plain", "framed"), sys.argv[3:], strict=True):
            orders = spark.read.format(kind).option("subscribe", topic).load(path)
            decoded = eval(decoding).toDF("order").select("order.*")
            print(json.dumps(sorted(map(list, decoded.collect()))))
"""
[RECIPE] = [block.code for block in blocks(PROJECT / "docs" / "recipes.md") if "import from_avro" in block.code]
DECODINGS = re.findall(r"^orders\.select.*?(?=$|  #)", RECIPE, re.MULTILINE)


def test_avro_is_written_and_read(tmp_path: Path) -> None:
    problem = java_problem() or jar_problem()
    try:
        module_of_spark("spark-avro_2.13")
    except MissingError as error:
        problem = problem or str(error)
    if problem:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(problem)
    assert len(DECODINGS) == 2
    program = [sys.executable, "-c", PROGRAM, tmp_path / "log", json.dumps(ROWS), *DECODINGS]
    done = subprocess.run(program, cwd=TESTS.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert [json.loads(line) for line in done.stdout.splitlines()] == [ROWS] * 4
