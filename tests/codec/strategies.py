"""What records may look like, for hypothesis."""

from __future__ import annotations

from hypothesis import strategies as st

from pylog.model import ProducerRecord
from tests.codec.reference import TS0

data = st.one_of(
    st.none(),
    st.binary(max_size=20),
    st.integers(0, 300).map(lambda n: b"v" * n),
    st.sampled_from([63, 64, 8191, 8192]).map(lambda n: b"w" * n),
)
timestamps = st.one_of(
    st.just(TS0), st.integers(TS0 - 10_000, TS0 + 10_000), st.integers(0, 2**63 - 1), st.sampled_from([0, 2**63 - 1])
)
headers = st.one_of(
    st.just(()),
    st.lists(st.tuples(st.text(max_size=8), data), max_size=3).map(tuple),
    st.integers(0, 70).map(lambda n: (("h", b"x"),) * n),
)
records = st.lists(st.builds(ProducerRecord, data, data, headers, timestamps), max_size=12)
