"""What a log's parts stand on: opening a directory, notification, producer ids, verification.

opening.py       what a directory is, and the settings it is opened with
notify.py        wakes consumers of this process and of others
producer_ids.py  ids that no other producer of the log has had
verification.py  checks every file of a log
"""
