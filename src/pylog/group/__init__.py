"""Consumer groups without a coordinator: members, assignments, and committed offsets.

The state of a group is in files. Every member that polls maintains it, under the group's lock.
"""

from __future__ import annotations
