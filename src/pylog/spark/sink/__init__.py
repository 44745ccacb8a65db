"""Writes Spark's rows into a log: tasks stage batches, the driver appends them in one transaction.

sink.py       what Spark calls to write           options.py, columns.py   what is allowed
staging.py    what a task writes                  directory.py             where
commit.py     the driver's transaction            earlier_builds.py        older logs
"""
