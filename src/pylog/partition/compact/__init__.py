"""Compaction of one partition: only the newest record of each key stays, as in Kafka. Docs:
docs/design.md, "Compaction"."""
