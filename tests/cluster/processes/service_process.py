"""One service as a real process, at a known health port, also before the services that it needs."""

import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from oncelog.runtime.port_claim import claim_port, port_of
from tests.cluster.commands import environment as commands_environment
from tests.cluster.kills import end
from tests.cluster.until import until

DEADLINE_S = 60.0


class Process:
    """One service at a known health port, advertised as localhost. It may be started again."""

    def __init__(self, folder: Path, module: str, zookeeper: str, *arguments: str, **environment: str) -> None:
        self._claim = claim_port("127.0.0.1")
        self.health_port = port_of(self._claim)
        self._log = folder / f"{module}-{self.health_port}.log"
        self._output = self._log.with_suffix(".out")
        command = [sys.executable, "-m", f"oncelog.{module}", "--zookeeper", zookeeper, "--host", "0.0.0.0"]
        command += ["--port", "0", "--health-port", str(self.health_port), "--advertised-host", "localhost", *arguments]
        self._command = command
        self._environment = commands_environment() | {"ONCELOG_FREE_BYTES_MIN": str(64 << 20)} | environment
        self.popen = self._launched()

    def _launched(self) -> "subprocess.Popen[bytes]":
        with self._output.open("wb") as output, self._log.open("wb") as log:
            return subprocess.Popen(self._command, stdout=output, stderr=log, env=self._environment)

    def start_again(self) -> None:
        """After its end, with a new log."""
        self.end()
        self.popen = self._launched()

    @property
    def log(self) -> str:
        return self._log.read_text()

    def health(self, path: str) -> tuple[int, dict[str, str]]:
        """Status, and the reasons by name. The status is 0 before the port is open."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.health_port}{path}", timeout=DEADLINE_S) as answer:
                return answer.status, json.load(answer)["reasons"]
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)["reasons"]
        except OSError:
            return 0, {}

    def value(self, path: str) -> dict[str, object]:
        """What the health port tells of the process."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.health_port}{path}", timeout=DEADLINE_S) as answer:
            value: dict[str, object] = json.load(answer)
        return value

    async def says(self, words: str) -> None:
        await until(lambda: words in self.log, DEADLINE_S, waiting_for=words)

    async def serving(self) -> dict[str, str]:
        await until(lambda: self._output.read_bytes().endswith(b"\n"), DEADLINE_S, waiting_for=str(self._log))
        serving: dict[str, str] = json.loads(self._output.read_text())["serving"]
        return serving

    async def ended(self) -> int:
        await until(lambda: self.popen.poll() is not None, DEADLINE_S)
        return self.popen.returncode

    def end(self) -> None:
        end(self.popen)

    def close(self) -> None:
        """For good: its port is given up."""
        self.end()
        self._claim.close()


@contextmanager
def processes(folder: Path, zookeeper: str) -> Iterator[Callable[..., Process]]:
    """start(module, …) inside the block; all are killed at its end."""
    with ExitStack() as stack:

        def start(module: str, *arguments: str, **environment: str) -> Process:
            process = Process(folder, module, zookeeper, *arguments, **environment)
            stack.callback(process.close)
            return process

        yield start
