"""``python -m pylog``: the command line."""

import sys

from pylog.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
