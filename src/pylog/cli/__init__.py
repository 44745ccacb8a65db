"""The command line. One file per command; ``main`` chooses, ``output`` is the only way to the terminal.

    main.py      the parser, errors and exit codes          topics.py   create, list, describe, alter, delete
    exits.py     what each exit code means                  produce.py  lines or JSON into a topic
    options.py   options that commands share                consume.py  records out of topics
    output.py    text no data can steer a terminal with     dump.py     the files of a partition, damaged ones too
    formats.py   a record as text or JSON                   verify.py   every batch, index and checkpoint checked
    progress.py  progress bars, where somebody sees them    stats.py    offsets, sizes and times of partitions

Starting is light: the rooms below are imported by the command that needs them, when it runs.
"""
