"""Repairing one partition while its lock is held: after a crash, a power failure or a failed
sync."""
