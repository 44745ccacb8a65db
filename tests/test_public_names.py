"""What ``import pylog`` offers, and what it must not cost."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pylog

PUBLIC_NAMES = [
    "AppendResult",
    "BackupReport",
    "Consumer",
    "ConsumerGroupMetadata",
    "Delivery",
    "ErasedPartition",
    "ErasureReport",
    "GroupDescription",
    "Log",
    "LogMaintenance",
    "LogSettings",
    "MaintenanceReport",
    "MemberDescription",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetChange",
    "OffsetRange",
    "OpenTransactionDescription",
    "Partition",
    "PartitionDescription",
    "PartitionMaintenance",
    "PartitionProgress",
    "Problem",
    "Producer",
    "ProducerRecord",
    "Record",
    "RecordMetadata",
    "SegmentInfo",
    "Table",
    "TopicConfig",
    "TopicDescription",
    "TopicPartition",
    "TransactionDescription",
    "VerifyReport",
    "WritableTable",
    "__version__",
    "errors",
    "table",
]
NOT_LOADED = [
    *(
        "cramjam",
        "lz4",
        "numpy",
        "pandas",
        "pyarrow",
        "pyspark",
        "rich",
        "rocksdict",
        "zstandard",
    ),  # extras, and what one codec needs
    *(
        "argparse",
        "asyncio",
        "dataclasses",
        "inspect",
        "pathlib",
        "platform",
        "subprocess",
        "uuid",
    ),  # milliseconds each
]


def public_things() -> Iterator[Any]:
    """Every public class with its own public methods and properties, and every exception."""
    for name in PUBLIC_NAMES:
        thing = getattr(pylog, name, None)
        if inspect.isclass(thing):
            yield pytest.param(thing, id=name)
            for member, value in inspect.getmembers(thing):
                if not member.startswith("_") and (inspect.isfunction(value) or isinstance(value, property)):
                    yield pytest.param(value, id=f"{name}.{member}")
    for name, thing in vars(pylog.errors).items():
        if inspect.isclass(thing) and issubclass(thing, Exception):
            yield pytest.param(thing, id=f"errors.{name}")


def test_the_public_names_are_these() -> None:
    assert sorted(pylog.__all__) == PUBLIC_NAMES


@pytest.mark.parametrize("thing", [*public_things()])
def test_a_public_name_says_what_it_is(thing: Any) -> None:
    written_for_us = f"{getattr(thing, '__name__', '')}("  # the docstring that a NamedTuple or dataclass makes up
    assert thing.__doc__
    assert not thing.__doc__.startswith(written_for_us)


def loaded_by(program: str) -> str:
    """Which of NOT_LOADED a new process has after the program, and had not before it."""
    program = f"import sys; before = {{*sys.modules}}\n{program}\nprint(sorted({{*sys.modules}} - before & {{*{NOT_LOADED}}}))"
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()


def test_importing_pylog_loads_nothing_heavy_and_nothing_optional() -> None:
    """Apart from ``VerifyReport``, a dataclass, and its ``Problem``, which only a check of a log
    and its caller need."""
    names = "set(pylog.__all__) - {'VerifyReport', 'Problem'}"
    assert loaded_by(f"import pylog; [getattr(pylog, name) for name in {names}]") == "[]"


@pytest.mark.parametrize("room", ["partition/read", "partition/producers", "partition/verify", "spark/source"])
def test_what_reads_loads_nothing_that_writes(room: str) -> None:
    """So an executor of Spark, or any other process that only reads, has no code at hand that
    changes a partition."""
    package = Path(pylog.__file__).parent
    modules = {f"pylog.{room.replace('/', '.')}.{file.stem}" for file in (package / room).glob("[!_]*.py")}
    program = f"import sys, {', '.join(modules)}; print(*(name for name in sys.modules if name.startswith('pylog')))"
    loaded = set(
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    )
    assert modules
    assert modules <= loaded
    writing = re.compile(r"pylog\.partition\.(write|repair|compact|grant|partition|partition_log)\b")
    assert [name for name in loaded if writing.match(name)] == []
    assert (
        loaded
        & {
            "pylog.segment.writer",
            "pylog.segment.files",
            "pylog.producer",
            "pylog.consumer",
            "pylog.log",
            "pylog.group",
        }
        == set()
    )


def test_names_are_loaded_when_they_are_first_used() -> None:
    program = "import sys, pylog; print('pylog.log' in sys.modules, 'Log' in dir(pylog), pylog.Log is pylog.log.Log)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["False", "True", "True"]


def test_all_names_come_with_a_star() -> None:
    names: dict[str, Any] = {}
    exec("from pylog import *", names)
    assert sorted(set(names) - {"__builtins__"}) == PUBLIC_NAMES


def test_working_with_a_log_loads_none_of_it_later_either(tmp_path: Path) -> None:
    program = f"""
import pylog
with pylog.Log({str(tmp_path / "log")!r}) as log:
    log.create_topic("t")
    with pylog.Producer(log) as producer:
        producer.send("t", b"v").result()
    with pylog.Consumer(log, auto_offset_reset="earliest") as consumer:
        consumer.subscribe("t")
        assert consumer.poll(60.0)
"""
    assert loaded_by(program) == "[]"


def test_a_package_that_loads_a_name_when_it_is_asked_for_has_no_other_names() -> None:
    with pytest.raises(AttributeError, match=r"module 'pylog\.partition' has no attribute 'Partitions'"):
        _ = pylog.partition.Partitions  # type: ignore[attr-defined]
    assert pylog.partition.Partition.__name__ == "Partition"
