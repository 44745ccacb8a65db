"""Reading one partition without its lock. Nothing here writes, and nothing here imports a part that
writes."""
