"""Giving back descriptors through which nothing was written."""

from __future__ import annotations

import os


def give_back(descriptor: int) -> None:
    """Close the descriptor of a directory, or of a lock's file. Linux has closed it whatever it answers, so that is not told."""
    try:
        os.close(descriptor)
    except OSError:
        return
