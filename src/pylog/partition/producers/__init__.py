"""What a partition knows of its producers: their sequence numbers, and the snapshots that hold them
on disk."""
