"""The words of a text, and their counts: what a worker does, and what the check repeats in one
thread."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

LINES, COUNTS, GROUP = "lines", "counts", "word-count"


def count_words(lines: Iterable[bytes]) -> Counter[bytes]:
    return Counter(word for line in lines for word in re.findall(rb"[a-z]+", line.lower()))
