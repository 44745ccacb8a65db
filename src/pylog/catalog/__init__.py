"""The topics of a log: names, configuration, and where their directories are."""

from pylog.catalog.catalog import Catalog
from pylog.catalog.detect import detect_kind
from pylog.catalog.kafka_catalog import KafkaCatalog
from pylog.catalog.layout import Layout
from pylog.catalog.manifest import Manifest, read_manifest, write_manifest
from pylog.catalog.topic import TopicConfig, TopicDescription, check_topic_name, no_such_partition

__all__ = [
    "Catalog",
    "KafkaCatalog",
    "Layout",
    "Manifest",
    "TopicConfig",
    "TopicDescription",
    "check_topic_name",
    "detect_kind",
    "no_such_partition",
    "read_manifest",
    "write_manifest",
]
