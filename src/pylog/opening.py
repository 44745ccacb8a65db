"""Which path may be opened as a log, or become one. Changes nothing."""

from __future__ import annotations

from pylog.catalog import Layout, TopicConfig, read_manifest
from pylog.catalog.layout import PRIVATE
from pylog.errors import ConfigError, LogNotFound
from pylog.storage import FileSystem, fspath

NAMES_SHOWN = 3


def checked_path(path: object) -> str:
    """The path as a str. ``ConfigError`` for what cannot name a directory, an empty str among it: write ``"."`` for that."""
    try:
        text: object = fspath(path)  # type: ignore[call-overload]  # that is the question
    except TypeError:
        text = path
    if not isinstance(text, str):
        raise _wrong_path(path, f"got {type(path).__name__}")
    if not text:
        raise _wrong_path(path, 'got an empty one; "." is the current directory')
    try:
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise _wrong_path(path, f"{text!r:.80} is not text") from None
    if "\0" in text:
        raise _wrong_path(path, f"{text!r:.80} has a null character")
    return text


def _wrong_path(path: object, reason: str) -> ConfigError:
    return ConfigError(f"the path of a log is a str or a Path: {reason}", option="path", value=path)


def refuse_directory_of_others(filesystem: FileSystem, layout: Layout) -> None:
    """``LogNotFound`` where a directory without a manifest holds anything but what a creation cut short left.

    Another process may be creating the log now: its manifest is there before its first topic.
    """
    others = [name for name in filesystem.names(layout.root) if name != PRIVATE]
    if others and read_manifest(filesystem, layout.manifest) is None:
        shown = ", ".join(map(repr, others[:NAMES_SHOWN])) + (", ..." if len(others) > NAMES_SHOWN else "")
        raise LogNotFound(
            f"{layout.root!r} is neither a log (it has no .pylog), nor a Kafka broker's log directory, nor empty (it holds "
            f"{shown}): name a log, or a new or empty directory to create one in",
            path=layout.root,
        )


def check_topic_options(options: dict[str, object]) -> None:
    """``ConfigError`` for Kafka's dotted name of an option, with the name it has here."""
    for option in options:
        here = option.replace(".", "_").replace("-", "_")
        if here != option and here in TopicConfig._fields:
            raise ConfigError(f"no topic option {option!r}; here it is {here}", option=option, expected=here)


def why_read_only(asked: bool, is_kafka_directory: bool) -> str:
    """Why a log that can only be read is so, as a part of a sentence."""
    if asked:
        return "it was opened with read_only=True"
    if is_kafka_directory:
        return "Kafka wrote this directory (it has no .pylog)"
    return "there is no permission to write to it"
