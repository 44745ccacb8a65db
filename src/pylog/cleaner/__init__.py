"""Deletes what the topics' policies no longer want to keep, and says what stays, and why."""
