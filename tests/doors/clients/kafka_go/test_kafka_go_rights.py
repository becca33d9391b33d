"""Go's clients of Kafka at a door with TLS and tokens."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.process.security_world import token
from tests.doors.clients.kafka_go.go_kafka import LIBRARIES, GoKafka, build
from tests.doors.clients.kafka_programs import Message, Options, Read
from tests.doors.cluster.conftest import NewDoor, authority, cluster, files, new_door, variables
from tests.doors.cluster.door_program import DoorProgram

__all__ = ["authority", "cluster", "files", "new_door", "variables"]

MESSAGES = [Message(b"value %d" % number) for number in range(100)]


@pytest.fixture(scope="module")
def door(new_door: NewDoor) -> Iterator[DoorProgram]:
    with new_door("--kafka-tls", "127.0.0.1:0") as own:
        yield own


@pytest.fixture
def servers(door: DoorProgram) -> str:
    return f"localhost:{door.port('kafka+ssl')}"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    return build(tmp_path_factory.mktemp("go"))


@pytest.fixture(params=LIBRARIES)
def go(program: str, request: pytest.FixtureRequest, tmp_path: Path) -> GoKafka:
    return GoKafka(program, request.param, tmp_path)


def by_password(files: Path, role: str, *, user: str = "me") -> Options:
    """The token of the role as the password."""
    login = {"sasl.username": user, "sasl.password": token(role)}
    return {"ssl.truststore.location": str(files / "ca.crt"), "metadata.retries": 3, **login}


def test_a_role_does_what_it_may(servers: str, go: GoKafka, files: Path) -> None:
    """Others get an error that names what is missing. The user name may be a namespace."""
    topic, offsets = f"secured-{go.library}", list(range(len(MESSAGES)))
    importer, billing = by_password(files, "importer", user="public/default"), by_password(files, "billing")
    assert go.publish(servers, topic, MESSAGES, importer) == offsets
    assert go.read(servers, topic, len(MESSAGES), billing) == [Read(at, each) for at, each in enumerate(MESSAGES)]
    with pytest.raises(AssertionError, match=r"(?i)topic.?authorization|not authorized to access this topic"):
        go.publish(servers, topic, MESSAGES[:1], billing)
