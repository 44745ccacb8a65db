"""Copies a log that is in use. See docs/design.md, "Backup"."""
