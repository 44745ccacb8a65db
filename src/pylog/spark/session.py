"""A Spark session that has ``format("pylog-jvm")``, and the jar of that format."""

from __future__ import annotations

import os
import sys
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from pylog.errors import ConfigError
from pylog.storage import OsFileSystem

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_HERE = PurePath(__file__).parent
_JAR = "pylog-spark.jar"
_PROVIDER = "pylog/spark/PylogTableProvider.class"
_SUBMITTED = "PYSPARK_GATEWAY_PORT"  # set by spark-submit for the program that it starts


def jar() -> str:
    """The path of the jar of ``format("pylog-jvm")``, for ``spark.jars`` or ``--jars``.

    ``ConfigError`` if this installation has none.
    """
    directory = str(_HERE / "jvm")
    if not OsFileSystem().is_directory(directory) or _JAR not in OsFileSystem().names(directory):
        raise ConfigError(
            f"this installation has no {_JAR}: it was made without a JDK or without pyspark. In a checkout that has both, "
            'scripts/jvm makes it; then install again: pip install . (format("pylog") needs no jar)',
            path=f"{directory}/{_JAR}",
        )
    return f"{directory}/{_JAR}"


def session_builder() -> SparkSession.Builder:
    """``SparkSession.builder`` for a session that has ``format("pylog-jvm")``.

    Its ``spark.jars`` replaces that of spark-defaults.conf: docs/spark.md, "In the JVM". If Spark's
    JVM runs already, ``ConfigError`` unless it was started with the jar; ``ConfigError`` also
    without the jar. Filters of ``format("pylog")`` stay with Spark: docs/spark.md, "Filters".
    """
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    builder: SparkSession.Builder = SparkSession.builder.config(
        map={"spark.pylog.python": sys.executable, "spark.pylog.pythonPath": str(_HERE.parents[1])}
    )
    if SparkContext._gateway is None and _SUBMITTED not in os.environ:
        return builder.config("spark.jars", jar())
    SparkContext._ensure_initialized()  # under spark-submit it connects to its JVM
    if not _has_reader(SparkContext._jvm):
        raise ConfigError(
            "Spark's JVM runs already, without the jar, and takes none any more: call session_builder() before the first "
            f"session; if spark-submit starts the program, then with --jars {jar()}"
        )
    return builder


def _has_reader(jvm: Any) -> bool:
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    return loader.getResource(_PROVIDER) is not None
