"""Hints for options of Kafka's tools that do not exist here. docs/cli.md has the same for users."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

HINTS: Mapping[str, str] = {
    **dict.fromkeys(
        ("--bootstrap-server", "--broker-list", "--zookeeper"),
        "there is no server: name the directory with --log DIR",
    ),
    "--topic": "name the topic without an option, as in pylog consume orders",
    "--replication-factor": "there are no replicas: leave it out",
    "--max-messages": "here it is --max-records",
    "--timeout-ms": "leave it out: without --follow, consume stops at the end",
    **dict.fromkeys(
        ("--property", "--formatter-property", "--reader-property"),
        "consume has --format and --json for what is printed, produce has --key-separator for keys",
    ),
    **dict.fromkeys(
        ("--producer-property", "--consumer-property", "--command-config", "--command-property"),
        "there are no properties of clients: see --help for the options",
    ),
    **dict.fromkeys(("--compression-codec", "--compression-type"), "here it is --compression"),
    **dict.fromkeys(
        ("--add-config", "--delete-config"), "here it is --config OPTION=VALUE, with the default to delete one"
    ),
    **dict.fromkeys(("--include", "--whitelist"), "name the topics, as in pylog consume orders payments"),
    **dict.fromkeys(("--to-datetime", "--by-duration"), "here it is --to-time, also for a duration"),
    "--to-current": "pylog groups describe shows where the group is",
    "--all-groups": "name one group; pylog groups list has them all",
    "--members": "describe shows the member of each partition",
    "--files": "name the files without an option, as in pylog dump orders-0",
    **dict.fromkeys(("--print-data-log", "--deep-iteration"), "here it is --records"),
    "--request-required-acks": "here it is --acks",
    **dict.fromkeys(
        ("--create", "--list", "--describe", "--alter", "--delete", "--reset-offsets"),
        "the command is a word, as in pylog topics create orders, pylog groups describe billing",
    ),
}


def hints(argv: Sequence[str], problem: str) -> str:
    """What to add to ``problem``, a parser's error: a hint for each option of Kafka's."""
    options = list(dict.fromkeys(word.partition("=")[0] for word in argv))
    if not {"reset", "abort"}.isdisjoint(options) and "--topic" not in problem:
        options = [option for option in options if option != "--topic"]  # groups reset and transactions abort have it
    return "".join(f"; Kafka's {option}: {HINTS[option]}" for option in options if option in HINTS)
