"""Finishes the swap of a segment that compaction has made, also for a process that died. The caller
holds the lock.

From the moment that ``<base>.seal.swap`` has its name, the swap is decided: it can only be
finished, and repeating it changes nothing. Readers are right at each step
(``segment/swap_view.py``). The seal is the last to get its plain name, after all other names are
durable: so a power failure leaves the decision, or the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pylog.errors import CorruptSegment
from pylog.interrupts import suppress
from pylog.partition.commit_slots import CommitState, next_version
from pylog.partition.grant import Grant
from pylog.segment.files import names_of, retire
from pylog.segment.naming import (
    CLEANED,
    CLEANED_KINDS,
    DELETED,
    LOG,
    SEAL,
    SNAPSHOT,
    SWAP,
    TRANSACTION_INDEX,
    base_offsets,
    file_name,
    file_path,
    is_leftover,
    offsets_of,
)
from pylog.segment.seal import Seal, check_home
from pylog.segment.swap_view import seen_through, swap_seal
from pylog.storage import FileSystem


def are_under_way(names: Sequence[str]) -> bool:
    """Whether a swap was decided and not finished."""
    return bool(offsets_of(names, SEAL + SWAP))


def finish_published(grant: Grant, state: CommitState) -> CommitState:
    """Finish what is under way, and publish a new version of the list of segments before and after.

    Returns the published state. Before: a process that has listed the segments earlier, and reads
    on, must notice.
    """
    state = grant.publish(state.successor(segments_version=next_version(state.segments_version)))
    finish(grant)
    return grant.publish(state.successor(segments_version=next_version(state.segments_version)))


def finish(grant: Grant) -> None:
    """Finish what is under way. ``CorruptSegment`` if the seal that decided it is damaged;
    ``StorageError``.

    Replaced files keep the suffix ``.deleted``: removing large ones takes long, and needs no lock.
    """
    grant.check()
    directory = grant.directory
    filesystem, path = directory.filesystem, directory.path
    names = directory.names()
    filesystem.sync_directory(path)  # the decision, before anything is removed
    for base in offsets_of(names, SEAL + SWAP):
        seal = swap_seal(filesystem, path, base)
        _check(grant, base, seal)
        for gone in [at for at in base_offsets(names) if base < at < seal.next_base]:
            retire(filesystem, path, [*names_of(names, gone), file_name(gone, SNAPSHOT)], grant.check)
        for kind in CLEANED_KINDS:
            grant.check()
            with suppress(FileNotFoundError):  # renamed before
                filesystem.replace(file_path(path, base, kind) + SWAP, file_path(path, base, kind))
        filesystem.sync_directory(path)
        grant.check()
        filesystem.replace(file_path(path, base, SEAL) + SWAP, file_path(path, base, SEAL))
        aborts = file_path(path, base, TRANSACTION_INDEX)
        if filesystem.exists(aborts) and not filesystem.size(aborts):
            filesystem.remove(aborts)


def _check(grant: Grant, base: int, seal: Seal) -> None:
    """Raises ``CorruptSegment`` if the seal is not of the segment that was written: it would remove
    others."""
    directory = grant.directory
    path = directory.file_path(base, SEAL) + SWAP
    check_home(seal.home, directory.home, path)
    size = seen_through(directory.filesystem, directory.path, [base]).size(directory.file_path(base, LOG))
    if size != seal.size_bytes:
        raise CorruptSegment(
            f"{path} is of a segment of {seal.size_bytes} bytes, but there is one of {size} bytes; nothing was replaced; restore "
            "the partition from a copy",
            path=path, position=0, size_bytes=size, expected=seal.size_bytes,
        )  # fmt: skip


def unfinished(names: Sequence[str], suffixes: Sequence[str] = (CLEANED, SWAP, DELETED)) -> list[str]:
    """Of these names, those with the suffixes that nothing needs: what a compaction or an erasure
    has begun and not decided, and what a swap has replaced."""
    kept = SWAP if are_under_way(names) else None
    taken = tuple(suffix for suffix in suffixes if suffix != kept)
    return [name for name in names if name.endswith(taken) and is_leftover(name)]


def remove_unfinished(
    filesystem: FileSystem,
    directory: str,
    check_process: Callable[[], object],
    suffixes: Sequence[str] = (CLEANED, SWAP, DELETED),
) -> None:
    """Remove it. Retired files need no lock, the others the cleaner's. ``check_process`` raises in
    a forked child."""
    for name in unfinished(filesystem.names(directory), suffixes):
        check_process()
        filesystem.remove(f"{directory}/{name}")
