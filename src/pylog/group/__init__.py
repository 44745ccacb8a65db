"""Consumer groups without a coordinator: who is in a group, who reads what, and how far each group has come.

The state of a group lies in files; whichever member polls does the group's housekeeping, under the group's lock.
"""

from __future__ import annotations
