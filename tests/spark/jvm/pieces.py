"""A planned range as the Java reader gets it."""

from __future__ import annotations

import base64
from contextlib import closing
from itertools import chain
from typing import Any

from pylog.partition.read.visibility import READ_COMMITTED
from pylog.spark.source.ranges import PartitionRange


def piece_of(planned: PartitionRange) -> dict[str, Any]:
    source, state = planned.source, planned.published
    topic, partition = source.topic_partition
    with closing(source.reader(state, planned.aborted)) as reader:
        infos = [info for info in reader.segment_infos() if info.base_offset < planned.end]
        segments = reader.segments(state)
        listed = []
        for number, info in enumerate(infos):
            if number + 1 < len(infos) and infos[number + 1].base_offset <= planned.start:
                continue
            following = segments.after(info.base_offset)
            listed.append(
                {
                    "base": info.base_offset,
                    "nextBase": -1 if following is None else following,
                    "path": info.path,
                    "sizeBytes": info.size_bytes,
                    "isClosed": following is not None,
                    "startPosition": 0,
                }
            )
        aborted = []
        if planned.isolation_level == READ_COMMITTED:
            for each in chain(reader._aborted.since(planned.start, state, segments), planned.aborted):
                aborted.append({"producerId": each[0], "firstOffset": each[1], "lastOffset": each[2]})
        return {
            "topic": topic,
            "partition": partition,
            "directory": source.directory,
            "start": planned.start,
            "end": planned.end,
            "readCommitted": planned.isolation_level == READ_COMMITTED,
            "isKafka": source.is_kafka,
            "identity": base64.b64encode(source.identity).decode(),
            "home": source.partition_directory().home,
            "segments": listed,
            "aborted": aborted,
            "logStart": state.log_start_offset,
        }
