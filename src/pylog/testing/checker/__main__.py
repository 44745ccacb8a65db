"""``python -m pylog.testing.checker FILE``: exit status 0; 1 for anomalies, 2 if not a history."""

from __future__ import annotations

import argparse
import sys

from pylog.testing.checker import check
from pylog.testing.history import read_history


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m pylog.testing.checker", description="Check a history for anomalies."
    )
    parser.add_argument("history", help="JSON lines, as pylog.testing.history writes them")
    parser.add_argument("--stuck-s", type=float, default=5.0, help="what takes longer is stuck (default: 5)")
    options = parser.parse_args()
    try:
        verdict = check(read_history(options.history), stuck_s=options.stuck_s)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    sys.stdout.write(f"{verdict}\n")
    return 0 if verdict.ok else 1


if __name__ == "__main__":
    sys.exit(main())
