"""Lets Spark find ``format("pylog")`` by itself: it looks for packages named ``pyspark_*`` that have a ``DefaultSource``."""

from pylog.spark import PylogDataSource as DefaultSource

__all__ = ["DefaultSource"]
