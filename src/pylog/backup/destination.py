"""Where a copy is made, and how it takes the place of an earlier one.

A copy is made beside its place, in ``<name>.unfinished-backup``, under the lock
``<name>.backup-lock``. Once it is complete and durable, one rename, or one exchange with the
earlier copy, puts it in place; then the earlier one is removed. So at each moment the place has the
earlier copy or the new one, and what a crash leaves beside it is removed by the next backup.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import TypeVar

from pylog.backup.record import RECORD, Record, read_record, record_path, what_changed
from pylog.catalog import Layout
from pylog.catalog.layout import PRIVATE
from pylog.errors import ConfigError, CorruptSegment, LogLocked, NotABackup
from pylog.interrupts import own
from pylog.storage import PRIVATE_MODE, FileSystem, make_directory_durably, same_process
from pylog.storage.atomic_file import TEMPORARY
from pylog.storage.directories import parent_of

T = TypeVar("T")

UNFINISHED = ".unfinished-backup"
LOCK = ".backup-lock"
_TRIES_MAX = 10  # each after another backup that has just ended
_NAME_BYTES_MAX = 255 - len(UNFINISHED)


class Destination:
    """The directory ``path`` of a backup of the log at ``root``. Both are absolute."""

    def __init__(self, filesystem: FileSystem, path: str, root: str, log_id: str) -> None:
        """Raises ``ConfigError`` if no backup of this log can be made there, whatever is there
        now."""
        self.path = path = path.rstrip("/")
        self.filesystem = filesystem
        self.unfinished = path + UNFINISHED
        self._lock = path + LOCK
        self._check_process: Callable[[], object] = bool  # while locked: fails in a forked child
        self._root = root
        self._log_id = log_id
        name = path.rpartition("/")[2]
        if name in ("", ".", ".."):
            raise ConfigError(
                f"{path or '/'!r} does not name the directory of a backup: end it with a name",
                option="path",
                value=path,
            )
        if len(name.encode("utf-8", "surrogateescape")) > _NAME_BYTES_MAX:
            raise ConfigError(
                f"the name {name!r:.80} is too long: a backup adds {UNFINISHED!r}", option="path", value=path
            )
        self._refuse_inside_a_log()

    def _refuse_inside_a_log(self) -> None:
        """Also inside of any other log: the next topic there may have the same name."""
        if f"{self._root}/".startswith(f"{self.path}/"):
            raise self._inside(f"the log {self._root!r} is in it")
        above = parent_of(self.path)
        while True:
            if above == self._root or self.filesystem.exists(Layout(above).manifest):
                raise self._inside(f"it is inside of the log {above!r}")
            if above in ("/", "."):
                return
            above = parent_of(above)

    def _inside(self, why: str) -> ConfigError:
        return ConfigError(
            f"no backup can be made at {self.path!r}: {why}; name a directory outside of any log",
            option="path",
            value=self.path,
        )

    def locked(self, work: Callable[[], T]) -> T:
        """Call ``work`` while no other backup to this place runs. ``LogLocked`` at once if one
        does."""
        filesystem = self.filesystem
        check_process = self._check_process = same_process(
            filesystem, f"a backup to {self.path} was being made", path=self.path
        )
        make_directory_durably(filesystem, parent_of(self.path), PRIVATE_MODE)
        for _ in range(_TRIES_MAX):
            with closing(filesystem.lock(self._lock)) as lock:
                if not lock.try_acquire():
                    break
                if not lock.is_in_place():
                    continue  # another backup has ended, and removed it
                try:
                    return work()
                finally:
                    check_process()  # else a child would remove the name of its parent's lock
                    filesystem.remove(self._lock)  # before it is free: another backup may have opened it meanwhile
        raise LogLocked(f"another backup to {self.path!r} is running; wait until it has ended", path=self._lock)

    # The earlier copy

    def earlier(self) -> Record | None:
        """What is there: None for nothing, or an empty directory. ``NotABackup`` for all that may
        not be replaced."""
        filesystem, path = self.filesystem, self.path
        if not filesystem.exists(path):
            return None
        if filesystem.is_link(path) or not filesystem.is_directory(path):
            raise self._refused("is no directory" if not filesystem.is_link(path) else "is a symbolic link")
        if not filesystem.names(path):
            return None
        try:
            record = read_record(filesystem, path)
        except own(CorruptSegment) as damage:
            raise self._refused(f"has no valid record of a backup ({damage})") from damage
        if record is None or not record.is_finished:
            raise self._refused("was not made by a backup")
        if record.log_id != self._log_id:
            raise self._refused("is a copy of another log", log_id=record.log_id, expected=self._log_id)
        own_record = read_record(filesystem, self._root)
        if own_record is not None and own_record.id == record.id:
            raise self._refused("is this log itself, or the copy that it was restored from")
        self.check_unchanged(record)
        return record

    def check_unchanged(self, record: Record | None) -> None:
        """Raises ``NotABackup`` if someone has changed the copy."""
        if record is not None and (why := what_changed(self.filesystem, self.path, record)) is not None:
            raise self._refused(f"is a copy that was changed since it was made: {why}")

    def _refused(self, why: str, **facts: object) -> NotABackup:
        return NotABackup(
            f"{self.path!r} {why}; it stays as it is: name another directory for the backup, or move this one away",
            path=self.path, problem=why, **facts,
        )  # fmt: skip

    # The new copy

    def begin(self) -> None:
        """Make the directory for a new copy. ``NotABackup`` if something else has its name."""
        self.remove_unfinished()
        for path in (self.unfinished, f"{self.unfinished}/{PRIVATE}"):
            self.filesystem.make_directory(path, PRIVATE_MODE)

    def sync_beginning(self) -> None:
        """Make durable that the directory is of a backup: so a crash leaves nothing that the next
        one must not remove."""
        for path in (f"{self.unfinished}/{PRIVATE}", self.unfinished, parent_of(self.path)):
            self.filesystem.sync_directory(path)

    def put(self, earlier: Record | None) -> None:
        """Let the finished, durable copy take its place, and remove the earlier one. Durable on
        return."""
        if earlier is None:
            self.filesystem.replace(self.unfinished, self.path)
        else:
            self.filesystem.exchange(self.unfinished, self.path)
        self.filesystem.sync_directory(parent_of(self.path))
        self.remove_unfinished()

    def remove_unfinished(self) -> None:
        """Remove what an earlier backup has left beside the place: an unfinished copy, or one that
        was replaced."""
        filesystem, path = self.filesystem, self.unfinished
        if not filesystem.exists(path):
            return
        if not self._is_of_a_backup():
            raise NotABackup(f"{path!r} was not made by a backup, which needs this name; move it away", path=path)
        private = f"{path}/{PRIVATE}"
        if filesystem.is_directory(private):
            self._check_process()
            filesystem.remove(Layout(path).manifest)
            filesystem.sync_directory(private)  # from now on no one takes the rest for a log
            remove_below(filesystem, path, self._check_process, keep=record_path(path))
            filesystem.sync_directory(private)
            filesystem.sync_directory(path)
            self._check_process()
            filesystem.remove(record_path(path))
            filesystem.remove_directory(private)
        filesystem.remove_directory(path)

    def _is_of_a_backup(self) -> bool:
        """A crash may have left it without a record only while it was empty."""
        filesystem, path = self.filesystem, self.unfinished
        if filesystem.is_link(path) or not filesystem.is_directory(path):
            return False
        private = f"{path}/{PRIVATE}"
        if not filesystem.is_directory(private):
            return not filesystem.names(path)
        names = set(filesystem.names(private))
        return RECORD in names or (filesystem.names(path) == [PRIVATE] and names <= {RECORD + TEMPORARY})


def remove_below(filesystem: FileSystem, path: str, check_process: Callable[[], object], keep: str = "") -> None:
    """Remove all that is in a directory but the file ``keep``. Links are removed, not followed.
    ``check_process`` is called before each removal."""
    for name in filesystem.names(path):
        check_process()
        each = f"{path}/{name}"
        if filesystem.is_link(each) or not filesystem.is_directory(each):
            if each != keep:
                filesystem.remove(each)
            continue
        remove_below(filesystem, each, check_process, keep)
        if not keep.startswith(f"{each}/"):
            check_process()
            filesystem.remove_directory(each)
