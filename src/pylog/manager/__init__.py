"""One open log, without its public face: what groups, producers, consumers and verification stand on.

manager.py       the topics and open partitions of a log, and all that is shared by those who use it
access.py        what producers and consumers use of that
opening.py       what a directory is, and the settings it is opened with
notify.py        wakes consumers of this process and of others
producer_ids.py  ids that no other producer of the log has had
verification.py  checks every file of a log
"""
