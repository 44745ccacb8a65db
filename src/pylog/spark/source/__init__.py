"""Reads a log into Spark. The driver plans; tasks read without a lock and write nothing.

options.py, offset_options.py   the options, checked
schema.py    the columns                   directory.py           what a path contains
batch.py     plans a query                 stream.py              plans the batches of a stream
planning.py  partitions, offsets, loss     trigger_limits.py      how large a stream's batch is
splits.py    cuts a plan into tasks        stream_offsets.py      what a checkpoint records
filters.py   what a filter leaves out      watched_partitions.py  looks for new records
ranges.py    reads a range on an executor  lag.py                 how far a stream has come
"""
