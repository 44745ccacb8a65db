"""One open log without its public face: groups, producers, consumers and verification use it.

manager.py       the topics and open partitions of a log, shared by all its users
known_topics.py  the topics that were looked up, until any process changes one
changes.py       gives topics another name, or other partitions
access.py        what producers and consumers use of the manager
opening.py       the kind of a directory, and the settings to open it with
notify.py        wakes consumers of this process and of others
producer_ids.py  ids that no other producer of the log has had
verification.py  checks every file of a log
"""
