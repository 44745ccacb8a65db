"""Gives a topic another name, or another number of partitions, while others use it."""
