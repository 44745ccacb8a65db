"""Spark's way into a log and out of it: ``format("pylog")``, without a jar, without a broker.

    data_source.py  what ``format("pylog")`` names: its columns, its reader, its writer
    source/         reads: a query or stream is planned on the driver, its ranges are read on executors
    sink/           writes: tasks stage batches, the driver decides and publishes them once

An executor that reads needs the package and permission to read, nothing else: it takes no lock and writes nothing.
"""

from pylog.errors import ConfigError

try:
    from pylog.spark.data_source import PylogDataSource
    from pylog.spark.source.lag import offsets_behind
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] not in ("pyarrow", "pyspark"):
        raise
    raise ConfigError(
        f"the Spark source needs {error.name}, which is not installed: pip install 'pylog-embedded[spark]', "
        "or pip install pyspark pyarrow pandas",
        extra="spark",
    ) from error

__all__ = ["PylogDataSource", "finish_commits", "offsets_behind"]


def finish_commits(path: str) -> int:
    """Finish what sinks have decided and not done in the log at ``path``: a driver died, or a disk was full.

    The next commit of any sink would do it, too. How many could not be finished; why, is logged (``pylog.spark``).
    """
    from pylog.spark.sink.sink import finish_commits as finish

    return finish(path)
