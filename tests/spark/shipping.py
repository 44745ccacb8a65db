"""pylog for a Python that does not have it: as a zip of the readable code, as an archive with the
compiled codec."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pylog

SOURCES = Path(pylog.__file__).parents[1]
PACKAGES = ("pylog", "pyspark_pylog")
NOT_THERE = (*PACKAGES, "__editable__")


def python_without_pylog(directory: Path) -> Path:
    """A Python that has what is installed here, but for pylog: without ``site``, so that no
    ``.pth`` file leads to it either."""
    there = directory / "site-packages"
    there.mkdir()
    for place in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        for entry in Path(place).iterdir():
            if not entry.name.startswith(NOT_THERE) and entry.suffix != ".pth":
                (there / entry.name).symlink_to(entry)
    program = directory / "python"
    paths = f'"${{PYTHONPATH:+$PYTHONPATH:}}{there}"'
    program.write_text(f'#!/bin/sh\nPYTHONPATH={paths} exec "{os.path.realpath(sys.executable)}" -S "$@"\n')
    program.chmod(0o755)
    return program


def pure_zip(path: Path) -> Path:
    """What ``--py-files`` takes."""
    with zipfile.ZipFile(path, "w") as file:
        for package in PACKAGES:
            for source in (SOURCES / package).rglob("*.py"):
                file.write(source, source.relative_to(SOURCES))
    return path


def site_directory(path: Path) -> Path:
    """What ``pip install --target`` makes, with the compiled codec if there is one."""
    for package in PACKAGES:
        shutil.copytree(
            SOURCES / package, path / package, ignore=shutil.ignore_patterns("__pycache__", "*.pyx", "*.pxi", "*.c")
        )
    return path


def archive(site: Path) -> Path:
    """What ``--archives`` takes."""
    packed = site.with_suffix(".tar.gz")
    with tarfile.open(packed, "w:gz", compresslevel=1) as file:
        for entry in site.iterdir():
            file.add(entry, entry.name)
    return packed
