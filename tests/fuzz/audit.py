"""What the interpreter is asked to do while hostile input is read: run by ``test_no_code.py`` in a
process of its own.

First right input goes every way, so that all is imported. Then a hook notes every import, execution
and process: there are none.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from pylog.errors import PylogError
from tests.fuzz import corpus, directories, engine
from tests.fuzz.targets import TARGETS

FORBIDDEN = (
    "import", "exec", "compile", "os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.startfile",
    "subprocess.Popen", "pty.spawn", "ctypes.", "pickle.", "marshal.", "code.", "cpython.run_", "socket.", "webbrowser.",
    "urllib.", "ftplib.", "smtplib.", "sqlite3.", "syslog.", "winreg.", "object.__setattr__", "os.chmod", "os.chown", "os.putenv",
)  # fmt: skip


def main(seed: int, count: int, workplace: str) -> None:
    noted: Counter[str] = Counter()
    listening = [False]

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if listening[0] and any(
            event == name or (name.endswith((".", "_")) and event.startswith(name)) for name in FORBIDDEN
        ):
            noted[f"{event} {str(arguments)[:200]}"] += 1

    sys.addaudithook(hook)
    place = Path(workplace)
    right = directories.build(place / "right")
    for log in right:
        for step in directories.STEPS:
            _try(step, Path(shutil.copytree(log, place / "warm", dirs_exist_ok=True)))
        shutil.rmtree(place / "warm")
    for number in range(20):  # damaged ones load what says so
        _directory(place, right, -1 - number, seed, listening, listen=False)
    pools = {name: corpus.pool_of(name) for name in TARGETS}
    inputs = 0
    for name, target in TARGETS.items():
        for data in target.seeds():
            _try(target.verdict, bytes(data))
        for data in pools[name]:
            listening[0] = True
            _try(target.verdict, data)
            listening[0] = False
            inputs += 1
    for number in range(count):
        _directory(place, right, number, seed, listening, listen=True)
    print(json.dumps({"inputs": inputs, "directories": count, "noted": noted}))


def _directory(place: Path, right: list[Path], number: int, seed: int, listening: list[bool], *, listen: bool) -> None:
    log, outside = place / "log", place / "outside"
    outside.write_bytes(b"")
    shutil.copytree(right[number % len(right)], log)
    directories.damage(log, random.Random(f"{seed} {number}"), outside)
    listening[0] = listen
    for step in directories.STEPS:
        _try(step, log)
    listening[0] = False
    if log.is_dir():
        shutil.rmtree(log)
    else:
        log.unlink()


def _try(read: Any, what: Any) -> None:
    try:
        read(what)
    except PylogError:
        return


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="pylog-audit-", dir=sys.argv[3]) as made, engine.quiet():
        main(int(sys.argv[1]), int(sys.argv[2]), made)
