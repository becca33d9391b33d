"""One start of a command, as from a user's shell, in a session of its own; and the kill of the whole session."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from oncelog.runtime.orphan_guard import guarded
from tests.cluster.kills import Once, moment
from tests.cluster.programs import Running
from tests.cluster.until import until_sync

_GONE_S = 60


class SessionProcess(Running):
    """`python WORDS …`, which ends with this process."""

    def __init__(
        self,
        words: Sequence[str],
        place: Path,
        log: Path,
        *,
        output: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start it. place: its working directory, also for Spark's temporary files. log: of its standard error, and
        without `output` of its standard output, too. environment: besides that of this process, without its settings
        of the product and of Spark."""
        own = {name: value for name, value in os.environ.items() if not name.startswith(("ONCELOG_", "SPARK_"))}
        places = {name: str(place) for name in ("SPARK_WORKER_DIR", "SPARK_LOCAL_DIRS")}
        with (output or log).open("ab") as told, log.open("ab") as errors:
            child = subprocess.Popen(
                guarded([sys.executable, *words]),
                stdin=subprocess.DEVNULL,
                stdout=told,
                stderr=errors,
                env=own | places | dict(environment or {}),
                cwd=place,
                start_new_session=True,
            )
        super().__init__(child, log)

    async def killed(self, *, once: Once) -> bool:
        """SIGKILL all of its processes as soon as the condition holds, and wait for their end. False: it had ended by
        itself before."""
        await moment(once)
        return kill_session(self.process)

    def end(self) -> None:
        """Kill what is left of it."""
        kill_session(self.process)


def kill_session(leader: subprocess.Popen[bytes]) -> bool:
    """Kill all processes of a session, and wait for their end. Whether this killed its leader."""
    until_sync(lambda: not _killed_of(leader.pid), _GONE_S, waiting_for="the end of a killed session")
    return leader.wait() == -signal.SIGKILL


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
