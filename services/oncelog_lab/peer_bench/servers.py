"""What the servers of Kafka and Pulsar share: free ports of the loopback interface, and the wait until they serve."""

import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from oncelog.runtime.port_claim import claim_port, port_of
from oncelog.runtime.zookeeper_server import find_java
from oncelog_lab.child_process import LabChild
from oncelog_lab.failures import LabFailed
from oncelog_lab.waiting import until

HOST = "127.0.0.1"
#: Brokers of Kafka, bookies of Pulsar: one for each copy.
BROKERS = 3
JAVA_MIN = 17
#: Of Kafka and Pulsar.
OLDEST = 4
#: Five Java processes start on two cores in less than a minute.
START_DEADLINE_S = 300.0
_LOOK_EVERY_S = 0.2


def peers_java() -> Path:
    """The Java of JAVA_HOME or PATH. Raises EmbeddedZooKeeperMissing, which names the version that is needed."""
    return find_java(JAVA_MIN, "the comparison")


@contextmanager
def claimed_ports(count: int) -> Iterator[list[int]]:
    """Free ports that no other process gets meanwhile; servers can listen on them."""
    with ExitStack() as stack:
        yield [port_of(stack.enter_context(claim_port(HOST))) for _ in range(count)]


async def until_listening(server: LabChild, port: int) -> None:
    """Raises LabFailed, with the last lines of a server that has ended."""

    async def listening() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((HOST, port)) == 0

    await until_serving(server, listening)


async def until_serving(server: LabChild, serving: Callable[[], Awaitable[bool]]) -> None:
    """Raises LabFailed, with the last lines of a server that has ended."""

    async def looked() -> bool:
        if server.ended:
            server.check_running()
        return await serving()

    try:
        await until(looked, START_DEADLINE_S, server.name, every_s=_LOOK_EVERY_S)
    except LabFailed as error:
        raise LabFailed(
            f"{server.name} does not serve: {error}{'' if server.ended else server.last_lines()}"
        ) from error


async def ended_well(name: str, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
    """Run a command to its end. Raises LabFailed with its last lines."""
    child = await LabChild.start(name, command, environment=environment)
    try:
        code = await child.wait()
    finally:
        await child.kill()
    if code:
        raise LabFailed(f"{name} failed with exit code {code}{child.last_lines()}")


def distribution_version(option: str, home: Path, jars: str, others: Sequence[str]) -> str:
    """Of a distribution in the directory that an option names. Raises LabFailed.

    jars: the path of its main jar, with a * for the version. others: paths that it also has.
    """
    before, _, after = jars.partition("*")
    found = [str(path.relative_to(home)).removeprefix(before).removesuffix(after) for path in home.glob(jars)]
    number = next((each for each in found if each[:1].isdigit()), None)
    lacking = [path for path in others if not any(home.glob(path))]
    if number is None or lacking:
        raise LabFailed(
            f"{option} {home} has no {', '.join([jars, *others])}: name the directory of an unpacked distribution of "
            f"version {OLDEST} or later"
        )
    if int(number.partition(".")[0]) < OLDEST:
        raise LabFailed(f"{option} {home} has version {number}: name the directory of version {OLDEST} or later")
    return number
