"""Reads and writes a log with Spark: ``format("pylog")``, without a jar or a broker.

    data_source.py  the class for ``format("pylog")``: its columns, its reader, its writer
    source/         reads: the driver plans a query or stream, executors read its ranges
    sink/           writes: tasks stage batches, the driver appends them in one transaction
    jvm/            reads batches in Java: ``format("pylog-jvm")``, planned by source/
    session.py      a Spark session with the jar of jvm/

A reading executor needs only the package and read permission: no lock, no write. The names here
are imported at first use: the planner of jvm/ does without pyspark and pyarrow.
"""

from typing import TYPE_CHECKING

from pylog.errors import ConfigError

if TYPE_CHECKING:
    from pylog.spark.data_source import PylogDataSource
    from pylog.spark.session import jar, session_builder
    from pylog.spark.source.lag import commit_progress, offsets_behind

__all__ = ["PylogDataSource", "commit_progress", "jar", "offsets_behind", "session_builder"]

if not TYPE_CHECKING:  # a type checker would accept any name

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        try:
            if name == "PylogDataSource":
                from pylog.spark import data_source as home
            elif name in ("jar", "session_builder"):
                from pylog.spark import session as home

                if name == "session_builder":
                    import pyspark  # noqa: F401 - it is imported when called: say first if it is missing
            else:
                from pylog.spark.source import lag as home
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in ("pyarrow", "pyspark"):
                raise
            raise ConfigError(
                f"the Spark source needs {error.name}, which is not installed: pip install 'pylog-embedded[spark]', "
                "or pip install pyspark pyarrow pandas",
                extra="spark",
            ) from error
        value = globals()[name] = getattr(home, name)
        return value
