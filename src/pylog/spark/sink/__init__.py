"""Writes Spark's rows into a log: tasks stage batches, the driver publishes them once.

sink.py       what Spark calls to write           options.py, columns.py   what is allowed
staging.py    what a task writes                  commit.py                the driver's commit, once
intents.py    decided, unfinished commits         publishing.py            appends to the partitions
directory.py  the sink's own files in a log
"""
