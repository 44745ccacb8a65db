"""Every target by its name."""

from tests.fuzz import file_targets, record_targets, segment_targets
from tests.fuzz.target import Target

TARGETS: dict[str, Target] = {**record_targets.TARGETS, **segment_targets.TARGETS, **file_targets.TARGETS}
