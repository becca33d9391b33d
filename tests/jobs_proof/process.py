"""One start of a command, as from a user's shell, in a session of its own; and the kill of the whole session."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from oncelog.runtime.orphan_guard import guarded
from tests.cluster.until import until_sync

#: Local, with one small Java process.
SPARK = (
    "--master=local[2]",
    "--conf=spark.driver.memory=1g",
    "--conf=spark.python.authenticate.socketTimeout=120s",
    "--conf=spark.sql.session.timeZone=UTC",
)
_GONE_S = 60


class JobProcess:
    """`oncelog pipeline WORDS … -o json`. place: its working directory, empty before, also for its output."""

    def __init__(self, words: Sequence[str], place: Path) -> None:
        place.mkdir(parents=True)
        self._answer = place / "answer.json"
        self.log = place / "errors.log"
        command = [sys.executable, "-m", "oncelog.cli", "pipeline", *words, *SPARK, "-o", "json"]
        with self._answer.open("wb") as answer, self.log.open("wb") as log:
            self._child = subprocess.Popen(
                guarded(command),
                stdin=subprocess.DEVNULL,
                stdout=answer,
                stderr=log,
                env=_environment(place),
                cwd=place,
                start_new_session=True,
            )

    @property
    def code(self) -> int | None:
        """None while it runs."""
        return self._child.poll()

    @property
    def answer(self) -> dict[str, Any]:
        """Its output."""
        told: dict[str, Any] = json.loads(self._answer.read_text())
        return told

    def kill(self) -> bool:
        """SIGKILL all of its processes, and wait for their end. False: it had ended by itself before."""
        return kill_session(self._child)


def kill_session(leader: subprocess.Popen[bytes]) -> bool:
    """Kill all processes of a session, and wait for their end. Whether this killed its leader."""
    until_sync(lambda: not _killed_of(leader.pid), _GONE_S, waiting_for="the end of a killed job")
    return leader.wait() == -signal.SIGKILL


def _environment(place: Path) -> dict[str, str]:
    """Spark's temporary files stay in the run's directory."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("ONCELOG_", "SPARK_"))}
    return own | {"SPARK_LOCAL_DIRS": str(place)}


def _killed_of(session: int) -> list[int]:
    """Kill all living processes of a session: Python workers leave their driver's group, but not its session."""
    names = [path.name for path in Path("/proc").iterdir()]
    alive = [pid for pid in map(int, filter(str.isdigit, names)) if _session_of(pid) == session]
    for pid in alive:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue  # it ended meanwhile
    return alive


def _session_of(pid: int) -> int:
    """-1: the process is dead."""
    try:
        state, _, _, session = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:4]
    except (FileNotFoundError, ProcessLookupError):
        return -1
    return -1 if state in {"Z", "X"} else int(session)
