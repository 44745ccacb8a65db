"""The command line. One file per command; ``main`` chooses, ``output`` alone writes to terminals.

    main.py      the parser, errors, exit codes    kafka_options.py    hints for Kafka's options
    exits.py     the meaning of each exit code     options.py          options that commands share
    output.py    text that steers no terminal      progress.py         progress bars on a terminal
    formats.py   a record as text or JSON          delivery_report.py  the outcome of ``produce``
    topics.py    create, list, describe, alter     dumped_records.py   how ``dump`` shows a record
    produce.py   lines or JSON into a topic        groups.py           members of groups, progress
    consume.py   records out of topics             group_view.py       ``groups describe``
    dump.py      a partition's files               group_reset.py      ``groups reset``
    verify.py    every batch, index, checkpoint    transactions.py     transactional ids
    stats.py     offsets, sizes, times             maintain.py         what retention has to do
    records.py   deletes the oldest records        erase.py            all records of keys
    backup.py    a copy of a log in use

Starting is fast: a command imports what it needs when it runs.
"""
