"""Bugs in what a wrong call is told, and in what may be passed."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_NAMES = "tests/test_kafka_names.py"
_MACHINE = "tests/testing/test_machine.py"

MUTANTS = (
    Mutant(
        "names of Kafka's clients are listed",
        "kafka_names.py",
        "if not cls.is_absent(name)]",
        "]",
        "help, tab completion and Mock(spec=Producer) offer what is not there",
        (f"{_NAMES}::test_an_attribute_that_is_not_here_says_what_to_use",),
    ),
    Mutant(
        "an import is answered with an AttributeError",
        "kafka_names.py",
        'if asking.f_code.co_code[asking.f_lasti] == opmap["IMPORT_FROM"]:',
        "if False:",
        "from pylog import KafkaProducer gives no advice",
        (f"{_NAMES}::test_importing_a_name_of_theirs_says_what_to_use",),
    ),
    Mutant(
        "a positional argument too many gets no advice",
        "checks.py",
        "if len(args) > positional:",
        "if False:",
        "Consumer(log, topic) does not speak of subscribe",
        (f"{_NAMES}::test_a_positional_argument_that_is_a_keyword_here_says_so",),
    ),
    Mutant(
        "options of every client get no advice",
        "checks.py",
        "if here in CLIENT_OPTIONS:",
        "if False:",
        "Producer(log, security_protocol=...) lists all options",
        (f"{_NAMES}::test_each_option_of_kafka_python_and_aiokafka_is_here_or_has_its_answer",),
    ),
    Mutant(
        "milliseconds are taken for seconds without a word",
        "consumer/consumer.py",
        "if type(timeout) is int and timeout >= _MILLISECONDS_FROM:",
        "if False:",
        "poll(1000) waits for a quarter of an hour",
        (f"{_NAMES}::test_a_timeout_that_may_be_meant_in_milliseconds_is_warned_of_where_it_stands",),
    ),
    Mutant(
        "a hook's full disk is an unknown error",
        "testing/machine/process.py",
        "                _answer(step, error)\n                raise\n",
        "                raise\n",
        "a test of a full disk sees OutcomeUnknown, which no full disk gives",
        (f"{_MACHINE}::test_a_full_disk_that_a_hook_makes_is_the_error_of_a_full_disk",),
    ),
    Mutant(
        "a table that was read is not taken",
        "arrow/rows.py",
        'IGNORED = ("topic", "offset", "timestampType")',
        'IGNORED = ("topic", "offset")',
        "what to_arrow returns cannot be sent",
        ("tests/producer/test_send_arrow.py::test_what_was_read_is_sent_again_as_it_is",),
    ),
    Mutant(
        "headers of an appended record are pairs only",
        "partition/write/batch_input.py",
        "if headers is not _NO_HEADERS and isinstance(headers, Mapping):",
        "if False:",
        "a dict of headers, which send takes, is refused",
        ("tests/test_log.py::test_headers_of_an_appended_record_are_pairs_or_a_dict",),
    ),
)
