"""Reads batches in Java: ``format("pylog-jvm")``. Planning stays in Python, in ``source/``.

planner.py  the driver's process: a line of JSON with a question, a line with the answer
pieces.py   a plan's ranges, as the Java reader gets them
java/       the reader; scripts/jvm makes pylog-spark.jar of it
"""
