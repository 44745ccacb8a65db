# The compiled codec has the interface of the readable one, with its annotations and docstrings.
from pylog.codec.by_partition import choose_partitions as choose_partitions
from pylog.codec.by_partition import count_plain as count_plain
from pylog.codec.by_partition import group_by_partition as group_by_partition
from pylog.codec.by_partition import murmur2 as murmur2
from pylog.codec.by_partition import pick as pick
from pylog.codec.columns import microseconds as microseconds
from pylog.codec.key_map import KeyMap as KeyMap
from pylog.codec.least_time import least_timestamp_ms as least_timestamp_ms
from pylog.codec.producer_entries import check_producers as check_producers
from pylog.codec.producer_entries import find_producer as find_producer
from pylog.codec.producer_entries import without_expired as without_expired
from pylog.codec.receipt import Receipt as Receipt
from pylog.codec.records import RecordDecoder as RecordDecoder
from pylog.codec.records import RecordEncoder as RecordEncoder
from pylog.codec.records import decode_columns as decode_columns
