"""The process of the planner: ``python -m pylog.spark.jvm``. Its stdout has answers, and nothing
else.

What anything else in the process prints goes to stderr, which the JVM logs.
"""

import os
import sys

if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)

    from pylog.spark.jvm.planner import serve

    serve(sys.stdin.buffer, answers)
