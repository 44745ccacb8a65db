"""The name of a group as its directory's: one for each, and nothing that leads elsewhere."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylog.catalog.layout import Layout, decoded_group, encoded_group

text = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


@given(text)
def test_a_name_comes_back(group: str) -> None:
    name = encoded_group(group)
    assert decoded_group(name) == group
    assert name.isascii()
    assert "/" not in name
    assert not name.startswith(".")


@pytest.mark.parametrize("name", ["", "%2e", "%FF", "a b", ".x", "%61", "%41", "a%"])
def test_what_no_group_is_called_is_none(name: str) -> None:
    assert decoded_group(name) is None


def test_capitals_are_escaped_if_the_filesystem_ignores_case() -> None:
    assert encoded_group("Orders.EU", ignores_case=True) == "%4Frders.%45%55"
    assert decoded_group("%4Frders.%45%55", ignores_case=True) == "Orders.EU"
    assert decoded_group("Orders", ignores_case=True) is None


def test_capitals_stay_elsewhere_as_processes_of_earlier_builds_have_them() -> None:
    """Else each build would have its own lock and state of one transactional id, and both would own
    it."""
    layout = Layout("/log")
    assert layout.group("Billing") == "/log/.pylog/groups/Billing"
    assert layout.transaction("App") == "/log/.pylog/transactions/App"
    assert layout.named_producer("Feed") == "/log/.pylog/producers/Feed.lock"


def test_groups_have_their_places() -> None:
    layout = Layout("/log")
    assert layout.group("../x") == "/log/.pylog/groups/%2E.%2Fx"
    assert layout.offsets_checkpoint(3) == "/log/.pylog/offsets-3.checkpoint"
