"""Bugs in what an erasure leaves, and what it removes."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_ENGINE = "partition/compact/erasure.py"
_TESTS = "tests/partition/test_erasure.py"

MUTANTS = (
    Mutant(
        "an erased batch loses its header, too",
        _ENGINE,
        "                        copy.add(_without(view, left))\n",
        "                        if left.kept:\n                            copy.add(_without(view, left))\n",
        "the numbers of its producer are lost, and offsets at the end of a segment are missing",
        (f"{_TESTS}::test_an_emptied_batch_keeps_its_offsets_and_its_producers_numbers",),
    ),
    Mutant(
        "the active segment is left out of an erasure",
        _ENGINE,
        "        if is_in_active or appended:\n",
        "        if False:\n",
        "the newest records of the key stay",
        (f"{_TESTS}::test_no_file_has_the_bytes_of_an_erased_record",),
    ),
    Mutant(
        "an erasure leaves what a crash has left",
        _ENGINE,
        "        if is_leftover(name) and (",
        "        if not is_leftover(name) and (",
        "files that nothing reads have the bytes for years",
        (f"{_TESTS}::test_leftovers_of_others_go_too",),
    ),
    Mutant(
        "an erasure forgets which transactions were aborted",
        _ENGINE,
        "                for aborted in self._aborted(segment):\n",
        "                for aborted in ():\n",
        "readers of committed records get aborted ones",
        (f"{_TESTS}::test_an_aborted_transaction_stays_aborted",),
    ),
    Mutant(
        "an erasure drops what the seal says of the transaction index",
        "partition/compact/cleaned.py",
        "self._seal.build(next_base, AbortedDigest.of(self._aborted))",
        "self._seal.build(next_base)",
        "a lost index looks like a segment without aborts",
        (f"{_TESTS}::test_an_aborted_transaction_stays_aborted",),
    ),
    Mutant(
        "an erasure removes its own tombstones",
        _ENGINE,
        "end, appended = result.base_offset, len(records)",
        "end, appended = result.last_offset + 1, len(records)",
        "a table that follows keeps the value",
        (f"{_TESTS}::test_tombstones_stay_and_are_not_written_twice",),
    ),
    Mutant(
        "each erasure appends another tombstone",
        _ENGINE,
        "if not (self._tombstones and taken.is_bare):",
        "if taken:",
        "erasing again never ends: the key stays for another horizon",
        (f"{_TESTS}::test_tombstones_stay_and_are_not_written_twice",),
    ),
    Mutant(
        "what an erasure leaves is as young as the erasure",
        "partition/compact/swap.py",
        "        filesystem.set_modified_ns(directory.file_path(base, LOG) + CLEANED, appended_ns)\n",
        "        bool(appended_ns)\n",
        "with retention_clock='append' each erasure keeps all records of its topic for another term",
        ("tests/cleaner/test_erase.py::test_records_that_stay_are_no_younger_by_the_clock_of_appends",),
    ),
    Mutant(
        "keys are looked for in compressed bytes",
        "codec/without_keys.py",
        "        data = bytes(payload)\n",
        "        data = bytes(view.buffer)\n",
        "records in compressed batches stay",
        (f"{_TESTS}::test_compressed_records_go_too[gzip]",),
    ),
    Mutant(
        "damage in one segment keeps the others from being erased",
        _ENGINE,
        "            self._unread = self._unread or error\n            return False\n",
        "            raise\n",
        "one flipped bit keeps all records of a person",
        (f"{_TESTS}::test_damage_does_not_keep_the_rest_from_being_erased",),
    ),
)
