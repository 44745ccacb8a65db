"""Hints for options of Kafka's tools that do not exist here. docs/cli.md has the same for users."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_SERVER = "there is no server: name the directory with --log DIR"
_TOPIC = "name the topic without an option, as in pylog consume orders"
_PROPERTIES = "consume has --format and --json for what is printed, produce has --key-separator for keys"
_SETTINGS = "there are no properties of clients: see --help for the options"
_VERB = "the command is a word, as in pylog topics create orders, pylog groups describe billing"

HINTS: Mapping[str, str] = {
    "--bootstrap-server": _SERVER,
    "--broker-list": _SERVER,
    "--zookeeper": _SERVER,
    "--topic": _TOPIC,
    "--replication-factor": "there are no replicas: leave it out",
    "--max-messages": "here it is --max-records",
    "--timeout-ms": "leave it out: without --follow, consume stops at the end",
    "--property": _PROPERTIES,
    "--formatter-property": _PROPERTIES,
    "--reader-property": _PROPERTIES,
    "--producer-property": _SETTINGS,
    "--consumer-property": _SETTINGS,
    "--command-config": _SETTINGS,
    "--command-property": _SETTINGS,
    "--compression-codec": "here it is --compression",
    "--request-required-acks": "here it is --acks",
    "--create": _VERB,
    "--list": _VERB,
    "--describe": _VERB,
    "--alter": _VERB,
    "--delete": _VERB,
    "--reset-offsets": _VERB,
}


def hints(argv: Sequence[str], problem: str) -> str:
    """What to add to ``problem``, a parser's error: a hint for each option of Kafka's."""
    options = list(dict.fromkeys(word.partition("=")[0] for word in argv))
    if "reset" in options and "--topic" not in problem:
        options = [option for option in options if option != "--topic"]  # pylog groups reset has it
    return "".join(f"; Kafka's {option}: {HINTS[option]}" for option in options if option in HINTS)
