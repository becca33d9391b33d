"""What the comparison runs against: PostgreSQL, Redis, a cluster of Oncelog, and Kafka from its jars."""

import base64
import os
import shutil
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from oncelog.runtime.orphan_guard import guarded
from oncelog.runtime.port_claim import claim_port, port_of
from tests.cluster.until import until_sync

HERE = Path(__file__).parent
START_S = 60.0
_INSTALL_S = 900
#: Of the broker. Sessions end after 2 seconds, as those of the programs.
_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
"""


def installed(directory: Path) -> tuple[Path, Path]:
    """The Python of a virtualenv with the clients, and the folder of Kafka's jars; both are kept in `directory`."""
    python, jars = directory / "venv/bin/python", directory / "jars"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(directory / "venv")], check=True, timeout=_INSTALL_S)
    wanted = ["-m", "pip", "install", "--quiet", "--requirement", str(HERE / "requirements.txt")]
    subprocess.run([str(python), *wanted], check=True, timeout=_INSTALL_S)
    if not jars.exists():
        maven = shutil.which("mvn")
        if maven is None:
            sys.exit("mvn is missing: install the package maven")
        goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={jars}"]
        subprocess.run([maven, "-q", "-B", "-f", str(HERE / "pom.xml"), *goal], check=True, timeout=_INSTALL_S)
    return python, jars


@contextmanager
def kafka(directory: Path, jars: Path) -> Iterator[str]:
    """One broker in KRaft mode; its address."""
    with claim_port("127.0.0.1") as claim, claim_port("127.0.0.1") as controller:
        yield from _kafka(directory, jars, port_of(claim), port_of(controller))


def _kafka(directory: Path, jars: Path, port: int, controller: int) -> Iterator[str]:
    directory.mkdir(parents=True)
    properties = directory / "server.properties"
    properties.write_text(_PROPERTIES.format(port=port, controller=controller, data=directory / "data"))
    program = shutil.which("java")
    assert program is not None, "java is missing"
    java = [program, "-Xmx512m", "-cp", f"{jars}/*"]
    name = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    with (directory / "kafka.log").open("ab") as log:
        subprocess.run(
            [*java, "kafka.tools.StorageTool", "format", "-t", name, "-c", str(properties)],
            check=True, stdout=log, stderr=log, timeout=START_S,
        )  # fmt: skip
        broker = subprocess.Popen(guarded([*java, "kafka.Kafka", str(properties)]), stdout=log, stderr=log)
    try:
        until_sync(lambda: _answers(port), START_S, waiting_for="Kafka")
        yield f"127.0.0.1:{port}"
    finally:
        broker.send_signal(signal.SIGKILL)
        broker.wait()


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def kafka_version(jars: Path) -> str:
    return next(jars.glob("kafka_2.13-*.jar")).stem.partition("-")[2]


def own_path() -> dict[str, str]:
    """Of programs that use the product."""
    return {"PYTHONPATH": os.pathsep.join([str(HERE.parents[1] / "services"), str(HERE / "programs")])}
