"""Registers ``format("pylog")``: Spark looks in ``pyspark_*`` packages for ``DefaultSource``."""

from pylog.spark import PylogDataSource as DefaultSource

__all__ = ["DefaultSource"]
