"""A Spark session with pylog's formats, and the jar of one of them."""

from __future__ import annotations

import sys
from pathlib import PurePath
from typing import TYPE_CHECKING

from pylog.errors import ConfigError
from pylog.storage import OsFileSystem

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_HERE = PurePath(__file__).parent
_JAR = "pylog-spark.jar"


def jar() -> str:
    """The path of the jar of ``format("pylog-jvm")``, for ``spark.jars`` or ``--jars``.

    ``ConfigError`` if this installation has none.
    """
    directory = str(_HERE / "jvm")
    if not OsFileSystem().is_directory(directory) or _JAR not in OsFileSystem().names(directory):
        raise ConfigError(
            f"this installation has no {_JAR}: it was made without a JDK or without pyspark. In a checkout that has both, "
            'scripts/jvm makes it; format("pylog") needs no jar',
            path=f"{directory}/{_JAR}",
        )
    return f"{directory}/{_JAR}"


def session_builder() -> SparkSession.Builder:
    """``SparkSession.builder`` for a session that has ``format("pylog-jvm")``.

    Call it before the program starts its first session. ``ConfigError`` after that, and without
    the jar. Filters of ``format("pylog")`` stay with Spark: docs/spark.md, "Filters".
    """
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if SparkContext._gateway is not None:
        raise ConfigError(
            "this program has started Spark's JVM already, which takes no jar any more: call session_builder() first, or "
            "set spark.jars to pylog.spark.jar() before the first session"
        )
    builder: SparkSession.Builder = SparkSession.builder
    return builder.config(
        map={
            "spark.jars": jar(),
            "spark.pylog.python": sys.executable,
            "spark.pylog.pythonPath": str(_HERE.parents[1]),
        }
    )
