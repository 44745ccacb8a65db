"""Writes rows of Spark into a log: tasks stage batches, the driver publishes them once.

sink.py       what Spark calls to write           options.py, columns.py   what may be written, checked
staging.py    what a task writes                  commit.py                what the driver does with it, once
intents.py    what is decided and not done yet    publishing.py            appends its batches to the partitions
directory.py  the sink's own files in a log
"""
