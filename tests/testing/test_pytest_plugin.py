"""The plugin in a pytest of its own, as somebody else's tests use it."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]


@pytest.fixture
def somebody(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    return pytester


def run(somebody: pytest.Pytester, program: str) -> pytest.RunResult:
    somebody.makepyfile(program)
    return somebody.runpytest_inprocess("-p", "pylog.testing.pytest_plugin", "-p", "no:cacheprovider", "-q")


def test_a_test_gets_a_fresh_log_that_is_closed_behind_it(somebody: pytest.Pytester) -> None:
    result = run(
        somebody,
        """
        from pylog.log import Log
        from pylog.testing import assert_records, consume_all, produce_all
        seen = []

        def test_one(pylog_log, tmp_path):
            seen.append(pylog_log)
            assert isinstance(pylog_log, Log) and not pylog_log.closed and not pylog_log.read_only
            assert pylog_log.topics() == [] and pylog_log.path.is_relative_to(tmp_path)
            pylog_log.create_topic("orders")
            produce_all(pylog_log, "orders", [b"400"])
            assert_records(consume_all(pylog_log, "orders"), [b"400"])
            with Log(pylog_log.path, create=False) as second:
                assert_records(consume_all(second, "orders"), [b"400"])

        def test_another(pylog_log):
            assert seen[0].closed and pylog_log is not seen[0]
            assert pylog_log.topics() == []

        def test_unknown_topics_are_errors_as_in_production(pylog_log):
            import pytest
            from pylog.errors import TopicNotFound
            with pytest.raises(TopicNotFound):
                produce_all(pylog_log, "orders", [b"400"])
        """,
    )
    result.assert_outcomes(passed=3)


def test_a_failing_test_closes_it_too(somebody: pytest.Pytester) -> None:
    result = run(
        somebody,
        """
        seen = []

        def test_fails(pylog_log):
            seen.append(pylog_log)
            raise AssertionError("as planned")

        def test_behind_it():
            assert seen[0].closed
        """,
    )
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*as planned*"])


def test_a_difference_is_what_the_report_shows(somebody: pytest.Pytester) -> None:
    result = run(
        somebody,
        """
        from pylog.testing import assert_records, consume_all

        def test_fails(pylog_log):
            pylog_log.create_topic("t")
            assert_records(consume_all(pylog_log, "t"), [b"x"])
        """,
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*0 records, expected 1; the first missing: b'x'*"])


def test_the_fixture_says_what_it_is(somebody: pytest.Pytester) -> None:
    result = somebody.runpytest_inprocess("-p", "pylog.testing.pytest_plugin", "-p", "no:cacheprovider", "--fixtures")
    result.stdout.fnmatch_lines(["*pylog_log*", "*An open, empty log*"])
