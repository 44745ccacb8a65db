"""For tests of programs that use pylog: a fresh log as a pytest fixture, and helpers to fill it, read it and compare.

The fixtures are in ``pytest_plugin``, which pytest finds by itself where pylog is installed; elsewhere
``-p pylog.testing.pytest_plugin`` names it.
"""

from pylog.testing.helpers import assert_records, consume_all, produce_all

__all__ = ["assert_records", "consume_all", "produce_all"]
