"""Spark's way into a log and out of it: ``format("pylog")``, without a jar, without a broker.

    source.py     the data source; schema.py its columns         options.py, bounds.py    what may be asked for, checked
    batch.py      plans a query on the driver                    positions.py  which partitions, which offsets, what was lost
    stream.py     plans a stream's batches; limits.py how large  stream_offsets.py  what a checkpoint has of it
    tails.py      looks for what is new; progress.py tells       directory.py  what a path holds, seen without a lock
    splits.py     cuts what is planned into tasks                ranges.py     reads a planned range on an executor

    sink.py       what Spark calls to write              sink_options.py, sink_columns.py    what may be written, checked
    staging.py    what a task writes                     sink_commit.py  what the driver does about it, once
    intents.py    what is decided and not done yet       publishing.py   its batches appended to the partitions

An executor that reads needs the package and permission to read, nothing else: it takes no lock and writes nothing.
"""

from pylog.errors import ConfigError

try:
    from pylog.spark.progress import offsets_behind
    from pylog.spark.source import PylogDataSource
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
    from pylog.spark.sink import finish_commits as finish

    return finish(path)
