"""Reads a log into Spark. The driver plans; tasks read without a lock and write nothing.

options.py, offset_options.py   the options, checked
schema.py    the columns                   directory.py           what a path contains
plan.py      plans a query                 batch.py               a query, for PySpark
planning.py  partitions, offsets, loss     partition_range.py     what is planned
splits.py    cuts a plan into tasks        stream.py              plans the batches of a stream
filters.py   what a filter leaves out      pushed_filters.py      PySpark's filters
ranges.py    reads a range on an executor  trigger_limits.py      how large a stream's batch is
lag.py       how far a stream has come     stream_offsets.py      what a checkpoint records
decisions.py decided transactions          watched_partitions.py  looks for new records
worker.py    a reader arrives in a worker process
"""
