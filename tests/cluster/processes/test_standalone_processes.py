"""The life of a supervised process, with small programs in place of the services."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from oncelog.cli.standalone.cluster_plan import ClusterPlan, ProcessPlan, Role
from oncelog.cli.standalone.fork_server import ForkServer
from oncelog.cli.standalone.process_start import ProcessStarter
from oncelog.cli.standalone.supervised_process import ProcessState, SupervisedProcess
from oncelog.cli.standalone.supervisor import _LOOK_EVERY_S, _SAY_EVERY_S, StartStopped, Supervisor
from tests.cluster.forked_program import spawned
from tests.cluster.kills import just_seen, kill
from tests.cluster.until import until

_DEADLINE_S = 60.0

SERVING = 'import signal, sys; print(\'{"serving": {"address": "127.0.0.1:1"}}\', flush=True); '
OBEDIENT = SERVING + "signal.sigwait([signal.SIGTERM])"
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + SERVING + "signal.pause()"
HOPELESS = "import sys; print('no such thing', file=sys.stderr); sys.exit(7)"


class Kept:
    """A supervised child process, and all reports about it."""

    def __init__(self, program: str | tuple[str, ...], tmp_path: Path, forks: ForkServer | None = None) -> None:
        """program: a source, or the module and arguments of `python -m`."""
        self.said: list[str] = []
        #: (process id, its announcement) each time that it became ready
        self.served: list[tuple[int | None, object]] = []
        words = ("-c", program) if isinstance(program, str) else ("-m", *program)
        plan = ProcessPlan("owner-1", Role.OWNER, (sys.executable, *words))
        given = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
        starter = ProcessStarter(forks, self.said.append)
        self.child = SupervisedProcess(plan, tmp_path / "owner-1.log", given, self._watch, starter)

    def _watch(self, child: SupervisedProcess, sentence: str) -> None:
        if sentence:
            self.said.append(sentence)
        if child.state is ProcessState.SERVING:
            self.served.append((child.pid, child.serving))


@asynccontextmanager
async def kept(
    program: str | tuple[str, ...], tmp_path: Path, *, drain_s: float = _DEADLINE_S, forks: ForkServer | None = None
) -> AsyncIterator[Kept]:
    """Supervise the program inside the block and stop it at the end."""
    own = Kept(program, tmp_path, forks)
    task = asyncio.create_task(own.child.keep())
    try:
        yield own
    finally:
        await own.child.stop(drain_s)
        await task


@pytest.mark.asyncio
async def test_process_is_ready_when_it_reports_its_addresses(tmp_path: Path) -> None:
    """A started process may not serve yet: the cluster is announced only when every process has reported its
    address."""
    async with kept(OBEDIENT, tmp_path) as own:
        await until(lambda: own.child.state is ProcessState.SERVING, _DEADLINE_S)
        assert own.child.serving == {"address": "127.0.0.1:1"}
        assert own.child.pid is not None
    assert own.child.state is ProcessState.STOPPED
    assert own.child.pid is None


@pytest.mark.asyncio
async def test_killed_process_is_restarted_and_reported(tmp_path: Path) -> None:
    """The supervisor restarts it without help, and always reports it."""
    async with kept(OBEDIENT, tmp_path) as own:
        await until(lambda: own.served, _DEADLINE_S)
        pid = own.served[0][0]
        assert pid is not None
        await kill(pid, once=just_seen)
        await until(lambda: len(own.served) == 2, _DEADLINE_S)
        assert own.child.restarts == 1
        assert own.served[1][0] not in {None, pid}
        assert "owner-1 was killed by SIGKILL; restarting it in 0.1 s" in own.said
        assert own.said[-1] == "owner-1 is ready again"


@pytest.mark.asyncio
async def test_process_that_never_becomes_ready_restarts_with_backoff(tmp_path: Path) -> None:
    """Restarts must not use up the machine's CPU. The last output of the process is kept."""
    async with kept(HOPELESS, tmp_path) as own:
        await until(lambda: own.child.failures >= 3, _DEADLINE_S)
        assert own.said[:3] == [
            f"owner-1 exited with code 7; restarting it in {wait} s" for wait in ("0.1", "0.2", "0.4")
        ]
        assert "no such thing" in own.child.last_words()


@pytest.mark.asyncio
async def test_process_that_does_not_drain_is_killed_at_the_deadline(tmp_path: Path) -> None:
    """Stopping the cluster has a deadline, and an incomplete drain is reported."""
    async with kept(DEAF, tmp_path, drain_s=0.2) as own:
        await until(lambda: own.child.state is ProcessState.SERVING, _DEADLINE_S)
    assert own.said[-1] == "owner-1 did not drain within 0 s and was killed"
    assert own.child.pid is None


@pytest.mark.asyncio
async def test_process_is_not_restarted_while_it_is_being_stopped(tmp_path: Path) -> None:
    """A stop may be requested between a death and its restart: then no process is started."""
    async with kept(HOPELESS, tmp_path) as own:
        await until(lambda: own.child.state is ProcessState.WAITING, _DEADLINE_S)
    restarts = own.child.restarts
    assert own.child.state is ProcessState.STOPPED
    assert own.child.restarts == restarts


@pytest.mark.asyncio
async def test_start_says_what_it_waits_for(tmp_path: Path) -> None:
    """ZooKeeper first, because all services need it; then those that do not serve. Not again while that stays."""
    said: list[str] = []
    looks = 0

    def stopping() -> bool:
        nonlocal looks
        looks += any("metadata-1" in each for each in said)
        return looks > 3 * _SAY_EVERY_S / _LOOK_EVERY_S

    def services(_plan: ClusterPlan, _zookeeper: str) -> list[ProcessPlan]:
        words = ("-c", "import signal; signal.pause()", "--http-port", "0")
        return [ProcessPlan("metadata-1", Role.METADATA, (sys.executable, *words))]

    with pytest.raises(ExceptionGroup) as caught:
        async with Supervisor(ClusterPlan(tmp_path, port=0, http_port=0), said.append).running(
            processes=services, stopping=stopping
        ):
            pass
    assert caught.group_contains(StartStopped)
    own = [each for each in said if each.startswith("waits for ")]
    assert own[-1] == f"waits for metadata-1; the logs are in {tmp_path / 'logs'}"
    assert own[:-1] in ([], [f"waits for ZooKeeper, which starts on the data in {tmp_path / 'zookeeper'}"])


#: `service obedient`, `service deaf`, …
SERVICE = f"""
import sys
SOURCES = { ({"obedient": OBEDIENT, "deaf": DEAF, "hopeless": HOPELESS})!r}

def main():
    exec(SOURCES[sys.argv[1]], {{}})

if __name__ == "__main__":
    main()
"""


@pytest.fixture
def forks(tmp_path: Path) -> Iterator[ForkServer]:
    """Has imported the module `service`."""
    (tmp_path / "service").mkdir()
    (tmp_path / "service" / "__main__.py").write_text(SERVICE)
    server = spawned(["service"], os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])})
    yield server
    server.end()


def is_fork(pid: int | None) -> bool:
    return Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"service\0")


@pytest.mark.asyncio
async def test_forks_are_supervised_as_programs_are(forks: ForkServer, tmp_path: Path) -> None:
    """Their readiness, deaths, exit codes, last words and deadlines."""
    async with kept(("service", "obedient"), tmp_path, forks=forks) as own:
        await until(lambda: own.served, _DEADLINE_S)
        pid = own.served[0][0]
        assert pid is not None
        assert is_fork(pid)
        await kill(pid, once=just_seen)
        await until(lambda: len(own.served) == 2, _DEADLINE_S)
        assert own.served[1][0] not in {None, pid}
        assert is_fork(own.child.pid)
        assert own.said == [
            "owner-1 is ready", "owner-1 was killed by SIGKILL; restarting it in 0.1 s", "owner-1 is ready again",
        ]  # fmt: skip
    assert own.child.pid is None
    async with kept(("service", "hopeless"), tmp_path, forks=forks) as own:
        await until(lambda: own.child.failures >= 2, _DEADLINE_S)
        assert own.said[0] == "owner-1 exited with code 7; restarting it in 0.1 s"
        assert "no such thing" in own.child.last_words()
    async with kept(("service", "deaf"), tmp_path, forks=forks, drain_s=0.2) as own:
        await until(lambda: own.child.state is ProcessState.SERVING, _DEADLINE_S)
    assert own.said[-1] == "owner-1 did not drain within 0 s and was killed"


@pytest.mark.asyncio
async def test_without_their_fork_server_processes_import_what_they_need(forks: ForkServer, tmp_path: Path) -> None:
    """Running processes go on. That later starts are slow is told; the cluster need not be started again at once."""
    async with kept(("service", "obedient"), tmp_path, forks=forks) as own:
        await until(lambda: own.served, _DEADLINE_S)
        await kill(forks.pid, once=just_seen)
        pid = own.served[0][0]
        assert pid is not None
        await kill(pid, once=just_seen)
        await until(lambda: len(own.served) == 2, _DEADLINE_S)
        assert not is_fork(own.child.pid)
        (told,) = [said for said in own.said if "is lost" in said]
        assert "it ended with code -9" in told
