"""Programs as forks of a process that has imported them: what they are given, what they share, and who dies when."""

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from textwrap import dedent
from types import TracebackType
from typing import Any

import pytest

from oncelog.cli.standalone.fork_server import ForkServer, ForkServerLost
from tests.cluster.forked_program import ForkedPopen, spawned
from tests.cluster.kills import alive
from tests.cluster.until import until_sync

_DEADLINE_S = 60.0
_PROGRAM = """
import json, os, random, re, signal, sys
from pathlib import Path
from oncelog.metadata.console.forms import _process_key
from oncelog.rpc import library
from oncelog.runtime.forks import grpc_is_inherited

def facts():
    status = Path("/proc/self/status").read_text()
    return {
        "argv": sys.argv,
        "environment": dict(os.environ),
        "parent": os.getppid(),
        "leads_its_session": os.getsid(0) == os.getpid(),
        "descriptors": sorted(int(each) for each in os.listdir("/proc/self/fd"))[:-1],
        "standard_input": os.readlink("/proc/self/fd/0"),
        # those that programs use: blocked, ignored, handled
        "signals": [int(mask, 16) & 0x7fffffff for mask in re.findall(r"Sig(?:Blk|Ign|Cgt):\\s+(\\w+)", status)],
        "random": random.random(),
        "key": _process_key().hex(),
        "grpc_is_inherited": grpc_is_inherited(),
    }

def main():
    match sys.argv[1]:
        case "facts":
            print(json.dumps(facts()), flush=True)
        case "change":
            os.environ["CHANGED"] = "1"
            signal.signal(signal.SIGUSR1, lambda *_: None)
        case "return":
            return int(sys.argv[2])
        case "say":
            print("unflushed", end="")
            sys.exit("what is wrong")
        case "fail":
            raise LookupError("not there")
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "wait":
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
            print("waiting", flush=True)
            signal.sigwait([signal.SIGUSR1])
        case "touch":
            Path(sys.argv[2]).touch()

if __name__ == "__main__":
    sys.exit(main())
"""


_THREAD = """
import threading, time
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
main = print
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with modules: `program`, and `threads`, which starts one when it is imported."""
    directory = tmp_path_factory.mktemp("forks")
    for name, source in {"program": _PROGRAM, "threads": _THREAD}.items():
        (directory / name).mkdir()
        (directory / name / "__main__.py").write_text(source)
    return directory


@pytest.fixture(scope="module")
def given(place: Path) -> dict[str, str]:
    """Of programs that buffer what they write."""
    own = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return {**own, "PYTHONPATH": os.pathsep.join([str(place), *sys.path])}


@pytest.fixture
def forks(given: Mapping[str, str]) -> Iterator[ForkServer]:
    server = spawned(["program"], given)
    yield server
    server.end()


class Program(ForkedPopen):
    """The program above, with these arguments."""

    def __init__(self, forks: ForkServer, place: Path, *arguments: str, **variables: str) -> None:
        self.log = place / "log"
        with self.log.open("wb") as log:
            super().__init__(forks, "program", arguments, {"PATH": "/bin"} | variables, log)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """A test that fails does not wait for it."""
        if kind is not None:
            self.kill()
        super().__exit__(kind, error, at)


def facts(forks: ForkServer, place: Path, *arguments: str, **variables: str) -> dict[str, Any]:
    with Program(forks, place, "facts", *arguments, **variables) as program:
        out = output_of(program)
    assert program.returncode == 0, program.log.read_text()
    found: dict[str, Any] = json.loads(out)
    return found


def output_of(program: Program) -> bytes:
    assert program.stdout is not None
    out = program.stdout.read()
    program.wait(_DEADLINE_S)
    return out


def ended(forks: ForkServer, place: Path, *arguments: str) -> int:
    with Program(forks, place, *arguments) as program:
        return program.wait(_DEADLINE_S)


def test_program_has_its_own_arguments_and_streams_and_nothing_of_others(
    forks: ForkServer, place: Path, given: Mapping[str, str]
) -> None:
    """Two services of a cluster differ in their settings only: a variable, a descriptor, a handler or a random state of
    one of them would be a fault in another that nobody could explain. gRPC was imported before the fork, but never
    used: no second copy of it is loaded."""
    (place / "open").write_text("")
    with (place / "open").open() as file:
        os.set_inheritable(file.fileno(), True)
        first = facts(forks, place, "--port", "0", ONLY="here")
        assert ended(forks, place, "change") == 0
        second = facts(forks, place)
    assert first["argv"] == ["program", "facts", "--port", "0"]
    assert first["environment"] == {"PATH": "/bin", "ONLY": "here"}
    assert second["environment"] == {"PATH": "/bin"}
    assert first["parent"] == os.getpid()
    assert first["leads_its_session"]
    assert first["descriptors"] == [0, 1, 2]
    assert first["standard_input"] == os.devnull
    assert first["random"] != second["random"]
    assert first["key"] != second["key"], "a token of the console's forms is of one process"
    assert not first["grpc_is_inherited"]
    executed = subprocess.run(
        [sys.executable, "-m", "program", "facts"], env=given, stdout=subprocess.PIPE, check=True, timeout=_DEADLINE_S
    )
    assert first["signals"] == second["signals"] == json.loads(executed.stdout)["signals"]


@pytest.mark.parametrize(
    ("words", "code", "output", "logged"),
    [
        (["return", "0"], 0, b"", ""),
        (["return", "70"], 70, b"", ""),
        (["say"], 1, b"unflushed", "what is wrong\n"),
        (["fail"], 1, b"", "LookupError: not there\n"),
        (["kill"], -signal.SIGKILL, b"", ""),
    ],
)
def test_program_ends_as_with_python_m(
    forks: ForkServer, place: Path, words: list[str], code: int, output: bytes, logged: str
) -> None:
    """Its parent gets the code or signal, and the log its last words."""
    with Program(forks, place, *words) as program:
        assert output_of(program) == output
    assert program.returncode == code
    assert program.log.read_text().endswith(logged)
    assert bool(program.log.read_text()) == bool(logged)


def test_process_list_shows_the_program(forks: ForkServer, place: Path) -> None:
    """And not the same command for all processes of a cluster: a search for an owner finds it."""
    with Program(forks, place, "wait") as program:
        assert program.stdout is not None
        assert program.stdout.readline() == b"waiting\n"
        assert Path(f"/proc/{program.pid}/cmdline").read_bytes().rstrip(b"\0") == b"program\0wait"
        assert Path(f"/proc/{program.pid}/comm").read_text() == "program\n"
        program.kill()


def test_programs_go_on_when_the_fork_server_dies(forks: ForkServer, place: Path) -> None:
    """They are children of the caller, which still gets their exit codes. It is told at its next call."""
    with Program(forks, place, "wait") as program:
        assert program.stdout is not None
        assert program.stdout.readline() == b"waiting\n"
        os.kill(forks.pid, signal.SIGKILL)
        with pytest.raises(ForkServerLost, match="ended with code -9"):
            Program(forks, place, "return", "0")
        assert program.poll() is None
        program.send_signal(signal.SIGUSR1)
        assert program.wait(_DEADLINE_S) == 0


def test_fork_server_that_does_not_answer_is_given_up(
    forks: ForkServer, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is killed, so that it does not start the program later, when the caller has started another."""
    assert ended(forks, place, "return", "0") == 0
    os.kill(forks.pid, signal.SIGSTOP)
    monkeypatch.setattr("oncelog.cli.standalone.fork_server.ANSWER_TIMEOUT_S", 0.2)
    with pytest.raises(ForkServerLost, match="ended with code -9"):
        Program(forks, place, "touch", str(place / "late"))
    assert not alive(forks.pid)
    assert not (place / "late").exists()


def test_answer_that_comes_at_the_last_moment_counts(
    forks: ForkServer, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each program that may have begun the caller knows."""
    assert ended(forks, place, "return", "0") == 0
    os.kill(forks.pid, signal.SIGSTOP)
    monkeypatch.setattr("oncelog.cli.standalone.fork_server.ANSWER_TIMEOUT_S", 0.2)
    kill = forks._kill

    def answered_before() -> int:
        os.kill(forks.pid, signal.SIGCONT)
        select.select([forks._connection], [], [], _DEADLINE_S)
        return kill()

    monkeypatch.setattr(forks, "_kill", answered_before)
    with Program(forks, place, "wait") as program:
        assert not alive(forks.pid)
        program.kill()


@pytest.mark.parametrize(
    ("module", "reason"),
    [("absent", "ModuleNotFoundError: No module named 'absent'"), ("threads", "RuntimeError: .* started 1 thread")],
)
def test_fork_server_that_cannot_serve_says_why(
    given: Mapping[str, str], place: Path, module: str, reason: str
) -> None:
    """A fork has none of the threads of its parent, and waits for ever for the lock that one of them held."""
    server = spawned(["program", module], given)
    with pytest.raises(ForkServerLost, match=reason):
        Program(server, place, "return", "0")


def parent_of(body: str, given: Mapping[str, str]) -> "subprocess.Popen[str]":
    """A process that runs the body with a fork server of its own: `fork(*arguments)` of the program."""
    code = "import os, sys, signal\nfrom oncelog.cli.standalone.fork_server import *\n"
    code += 'print("once", end="", file=sys.stderr)\n'
    code += 'def fork(*words): return forks.fork("program", words, os.environ, output=1, log=2)\n'
    code += 'with ForkServer.running(["program"]) as forks:\n'
    code += "".join(f"    {line}\n" for line in dedent(body).strip().splitlines())
    return subprocess.Popen(
        [sys.executable, "-c", code], env=dict(given), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_program_ends_with_its_parent(given: Mapping[str, str]) -> None:
    """A supervisor that is killed cannot stop its services, which keep ports and directories."""
    with parent_of("print(forks.pid, fork('wait'), flush=True)\nsignal.pause()", given) as parent:
        assert parent.stdout is not None
        first, second = parent.stdout.readline(), parent.stdout.readline()
        ids = next(line for line in (first, second) if "waiting" not in line).split()
        left = [int(each) for each in ids]
        assert all(map(alive, left))
        parent.kill()
        until_sync(lambda: not any(map(alive, left)), _DEADLINE_S, waiting_for="the ends of both")


def test_what_the_parent_has_not_flushed_is_written_once(given: Mapping[str, str]) -> None:
    """A fork has a copy of its buffers: of a line that has not ended, say."""
    with parent_of("assert os.waitpid(fork('return', '3'), 0)[1] == 3 << 8", given) as parent:
        assert parent.communicate(timeout=_DEADLINE_S) == ("", "once")
        assert parent.returncode == 0


def test_parent_may_have_no_standard_streams(given: Mapping[str, str], place: Path) -> None:
    """A daemon may have closed them: what opens next gets their numbers, and the program its own streams. The fork
    server ends with its parent all the same."""
    code = f"""if True:
        import os
        from oncelog.cli.standalone.fork_server import ForkServer
        with ForkServer.running(["program"]) as forks:
            out = os.open({str(place / "without")!r}, os.O_WRONLY | os.O_CREAT)
            os.waitpid(forks.fork("program", ["facts"], os.environ, output=out, log=out), 0)
            with open({str(place / "server")!r}, "w") as file:
                file.write(str(forks.pid))
            os.kill(os.getpid(), 9)
        """
    command = ["/bin/sh", "-c", 'exec "$0" -c "$1" <&- >&- 2>&-', sys.executable, code]
    done = subprocess.run(command, env=dict(given), check=False, timeout=_DEADLINE_S)
    assert done.returncode == -signal.SIGKILL
    assert json.loads((place / "without").read_text())["descriptors"] == [0, 1, 2]
    server = int((place / "server").read_text())
    until_sync(lambda: not alive(server), _DEADLINE_S, waiting_for="the end of the fork server")


def test_program_that_its_parent_does_not_know_does_not_begin(given: Mapping[str, str], place: Path) -> None:
    """The parent may die, or the fork server, between the fork and the answer."""
    code = f"""if True:
        import os
        from oncelog.cli.standalone import fork_server
        ours, its = fork_server.connected()
        ours.close()
        null = os.open(os.devnull, os.O_RDWR)
        program = lambda: open({str(place / "unknown")!r}, "w")
        try:
            fork_server._fork(its, {{"program": program}}, null, null, null)
        except BrokenPipeError:
            print("nobody was told", flush=True)
        """
    done = subprocess.run(
        [sys.executable, "-c", code], env=dict(given), stdout=subprocess.PIPE, check=True, timeout=_DEADLINE_S
    )
    assert done.stdout == b"nobody was told\n"
    assert not (place / "unknown").exists()
