"""What records are handed out as: objects here, columns in arrow_form.py. A lane reads ahead for one form at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from pylog.codec.batch import BatchView
from pylog.codec.format import NONE
from pylog.consumer.config import ConsumerConfig
from pylog.consumer.deserialize import RecordDeserializer
from pylog.errors import PylogError
from pylog.model import Record, TopicPartition

if TYPE_CHECKING:
    from pylog.codec import RecordDecoder

DECODE_RECORDS_MAX = 4_096
"""Records decoded in one call: bounds what a hostile batch can make of few bytes, and is plenty for speed."""


class Chunk(Protocol):
    """Some records in a form: a list of them, or something like it."""

    def __len__(self) -> int: ...
    def extend(self, more: Any, /) -> object: ...


Taken = TypeVar("Taken", bound=Chunk)
Taken_co = TypeVar("Taken_co", bound=Chunk, covariant=True)


class Decoder(Protocol[Taken_co]):
    """The records of one batch, in order. What it raises is about the first record it has not given out."""

    @property
    def remaining(self) -> int: ...
    def skip_to(self, offset: int) -> None: ...
    def take(self, max_records: int) -> Taken_co: ...


class Form(Protocol[Taken]):
    """How the records of a lane are decoded. Has no state: what is read ahead is the lane's."""

    at_once: int
    """The most records asked of a decoder in one call."""

    def nothing(self) -> Taken:
        """A chunk of no records, to be extended."""

    def decoder(self, view: BatchView, of: TopicPartition, limit_bytes: int) -> tuple[Decoder[Taken], int]:
        """The batch's records, decompressed to at most ``limit_bytes``; and the bytes held besides the stored ones."""

    def finish(self, chunk: Taken) -> tuple[Taken, PylogError | None]:
        """The good ones before the first that cannot be handed out, and the error for that one."""

    def next_offset(self, chunk: Taken) -> int:
        """The offset behind the last of the records."""

    def is_full(self, chunk: Taken) -> bool:
        """True where a chunk should not grow, however many records were asked for."""


class RecordForm:
    """``Record`` objects, deserialized."""

    at_once = DECODE_RECORDS_MAX

    def __init__(self, config: ConsumerConfig) -> None:
        self._transform = None
        if config.key_deserializer is not None or config.value_deserializer is not None:
            self._transform = RecordDeserializer(config.key_deserializer, config.value_deserializer)

    def nothing(self) -> list[Record]:
        return []

    def decoder(self, view: BatchView, of: TopicPartition, limit_bytes: int) -> tuple[RecordDecoder, int]:
        decoder = view.decoder(*of, limit_bytes)
        held_bytes = 0 if view.header.codec == NONE else decoder.size_bytes  # 0: it reads the stored bytes themselves
        return decoder, held_bytes

    def finish(self, chunk: list[Record]) -> tuple[list[Record], PylogError | None]:
        return (chunk, None) if self._transform is None else self._transform(chunk)

    def next_offset(self, chunk: list[Record]) -> int:
        return chunk[-1].offset + 1

    def is_full(self, chunk: list[Record]) -> bool:
        return False
