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
    """The path of the jar for ``format("pylog-jvm")``: for ``spark.jars`` or ``--jars``.

    ``ConfigError`` if this installation has none.
    """
    names = OsFileSystem().names(str(_HERE / "jvm")) if OsFileSystem().is_directory(str(_HERE / "jvm")) else []
    if _JAR not in names:
        raise ConfigError(
            f"this installation has no {_JAR}: it was made without a JDK or pyspark. In a checkout, scripts/jvm makes it "
            '(it needs a JDK of 17 or newer, and pyspark); format("pylog") does without',
            path=str(_HERE / "jvm" / _JAR),
        )
    return str(_HERE / "jvm" / _JAR)


def session_builder() -> SparkSession.Builder:
    """``SparkSession.builder`` with ``format("pylog-jvm")`` and filters pushed down to ``format("pylog")``.

    Call it before the program's first session starts: a running JVM takes no jar.
    ``ConfigError`` without the jar, or if a session runs already.
    """
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if SparkContext._active_spark_context is not None:
        raise ConfigError(
            "a Spark session runs already, and takes no jar any more: stop it, or set spark.jars to pylog.spark.jar() before "
            "it starts"
        )
    settings = {
        "spark.jars": jar(),
        "spark.pylog.python": sys.executable,
        "spark.pylog.pythonPath": str(_HERE.parents[1]),
        "spark.sql.python.filterPushdown.enabled": "true",
    }
    builder: SparkSession.Builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder
