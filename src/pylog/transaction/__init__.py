"""Transactions: several partitions, and a group's offsets, all or none.

There is no coordinator process. docs/transactions.md has the protocol. From the bottom:

state.py       the pure table of states and legal moves
records.py     the records of ``__transaction_state``, in Kafka's layout
state_file.py  a transactional id's state for this boot, in two slots
directory.py   the files of one transactional id
table.py       ``__transaction_state``: which transactions were decided, and how
unfinished.py  commits that the table must remember, since markers may be missing
needed.py      which of the table's older records compaction must keep
expiry.py      forgets ids that were not used for a week
owner.py       what a live producer does with its transactional id
offsets.py     offsets of groups in its transaction
outcomes.py    what all others do: decide, and finish what its owner left
admin.py       lists, describes and aborts; descriptions.py has the values
"""
