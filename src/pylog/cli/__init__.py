"""The command line. One file per command; ``main`` chooses, only ``output`` writes to the terminal.

    main.py      the parser, errors, exit codes    topics.py   create, list, describe, alter, delete
    exits.py     the meaning of each exit code     produce.py  lines or JSON into a topic
    options.py   options that commands share       consume.py  records out of topics
    output.py    text that steers no terminal      dump.py     a partition's files, also damaged
    formats.py   a record as text or JSON          verify.py   every batch, index and checkpoint
    progress.py  progress bars on a terminal       stats.py    offsets, sizes, times of partitions

Starting is fast: a command imports what it needs when it runs.
"""
