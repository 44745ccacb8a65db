"""Changing one partition while its lock is held: appends, syncs, rolls, seals, deletions."""
