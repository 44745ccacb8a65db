"""How fast pylog is, beside the machine's limits and what one would use instead: ``python -m
benchmarks --list``.

    workload.py    what a workload is: contenders, samples, figures to reach
    rounds.py      runs the contenders of one in turn, several rounds
    report.py      what came out: a table, JSON; plot.py draws it
    workloads/     the workloads themselves
    rivals/        the systems that pylog is compared with, each behind the same few functions
    settings.py    what every contender has in common: the records, the sizes of a run

README.md says how a run is made fair, and explains figures that are not reached.
"""
