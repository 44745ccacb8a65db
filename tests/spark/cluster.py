"""A standalone Spark cluster on this machine: a master, and workers, each of which starts executors
of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import pyspark

HOME = Path(pyspark.__file__).parent
STARTED = re.compile(r"(spark://[0-9.]+:[0-9]+)")


class Cluster:
    """``url`` is its master's. Leaving the block ends everything."""

    def __init__(self, directory: Path, workers: int, cores: int = 1, **environment: str) -> None:
        """``cores`` of each worker, as far as Spark counts them. ``environment``: what its
        processes have other than this one."""
        self._directory = directory.resolve()
        self._environment = environment
        self._processes: list[subprocess.Popen[str]] = []
        self._logs: list[subprocess.Popen[bytes]] = []
        try:
            self.url = self._said(self._start("master.Master", "--port", "0"), "Starting Spark master at")
            started = [
                self._start("worker.Worker", "--cores", str(cores), "--memory", "2g",
                            "--work-dir", str(self._directory / f"worker-{number}"), self.url)
                for number in range(workers)
            ]  # fmt: skip
            for worker in started:
                self._said(worker, "Successfully registered with master")
        except BaseException:
            self._end()
            raise

    def executors(self) -> list[int]:
        """The processes that run tasks."""
        found = []
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                command = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
                is_ours = Path(os.readlink(entry / "cwd")).is_relative_to(self._directory) if command else False
                if b"CoarseGrainedExecutorBackend" in command and is_ours:
                    found.append(int(entry.name))
        return found

    def _start(self, name: str, *options: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}",
             "--host", "127.0.0.1", "--webui-port", "0", *options],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self._directory,
            start_new_session=True,
            env={**os.environ, "SPARK_HOME": str(HOME), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m",
                 "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # they do little, and start sooner
                 "SPARK_MASTER_OPTS": "-Dspark.deploy.maxExecutorRetries=-1",  # tests kill them
                 "PYSPARK_PYTHON": sys.executable, **self._environment},
        )  # fmt: skip
        self._processes.append(process)
        return process

    def _said(self, process: subprocess.Popen[str], when: str) -> str:
        """Wait until it says that it is ready; the address it says."""
        assert process.stderr is not None
        said = []
        for line in process.stderr:
            said.append(line)
            if when in line:
                with open(self._directory / f"{self._processes.index(process) + 1}.log", "w") as log:
                    self._logs.append(
                        subprocess.Popen(["cat"], stdin=process.stderr, stdout=log, start_new_session=True)
                    )
                found = STARTED.search(line)
                return found[1] if found else ""
        raise RuntimeError("".join(said))

    def __enter__(self) -> Cluster:  # noqa: PYI034 - typing.Self came with Python 3.11
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._end()

    def _end(self) -> None:
        for process in reversed(self._processes):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if process.stderr:
                process.stderr.close()
        for log in self._logs:
            log.kill()
            log.wait()
