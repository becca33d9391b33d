"""Java's clients of Kafka at a door with TLS and tokens, in both mechanisms of SASL."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.process.security_world import token
from tests.doors.clients.kafka_java.java_kafka import VERSIONS, JavaKafka
from tests.doors.clients.kafka_programs import Message, Options, Read
from tests.doors.cluster.conftest import NewDoor, authority, cluster, files, new_door, variables
from tests.doors.cluster.door_program import DoorProgram

__all__ = ["authority", "cluster", "files", "new_door", "variables"]

MESSAGES = [Message(b"value %d" % number) for number in range(100)]
_MODULES = "org.apache.kafka.common.security"


@pytest.fixture(scope="module")
def door(new_door: NewDoor) -> Iterator[DoorProgram]:
    with new_door("--kafka-tls", "127.0.0.1:0") as own:
        yield own


@pytest.fixture
def servers(door: DoorProgram) -> str:
    return f"localhost:{door.port('kafka+ssl')}"


@pytest.fixture(scope="module", params=VERSIONS)
def java(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> JavaKafka:
    return JavaKafka(request.param, tmp_path_factory.mktemp("classes"), tmp_path_factory.mktemp("given"))


def over_tls(files: Path) -> dict[str, str]:
    """Options of the client, which checks the certificate and its name."""
    return {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(files / "ca.crt"),
    }


def by_password(files: Path, role: str, *, user: str = "me") -> Options:
    """The token of the role as the password."""
    login = f'{_MODULES}.plain.PlainLoginModule required username="{user}" password="{token(role)}";'
    return {**over_tls(files), "sasl.mechanism": "PLAIN", "sasl.jaas.config": login}


def by_bearer(files: Path, file: Path) -> Options:
    """The token in a file, which the client reads again before its end."""
    login = f'{_MODULES}.oauthbearer.OAuthBearerLoginModule required file="{file}" seconds="3600";'
    return {
        **over_tls(files),
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": login,
        "sasl.login.callback.handler.class": "TokenOfFile",
    }


def topic_of(java: JavaKafka, name: str) -> str:
    return f"{name}-{re.sub(r'[^a-z0-9]', '', str(java.programs.jars.name).lower())}"


def test_a_role_does_what_it_may(servers: str, java: JavaKafka, files: Path) -> None:
    """Others get an error that names the topic. The user name may be a namespace."""
    topic, offsets = topic_of(java, "secured"), list(range(len(MESSAGES)))
    importer, billing = by_password(files, "importer", user="public/default"), by_password(files, "billing")
    assert java.publish(servers, topic, MESSAGES, importer) == offsets
    assert java.read(servers, topic, len(MESSAGES), billing) == [Read(at, each) for at, each in enumerate(MESSAGES)]
    with pytest.raises(AssertionError, match="TopicAuthorizationException"):
        java.publish(servers, topic, MESSAGES[:1], billing)
    with pytest.raises(AssertionError, match="TopicAuthorizationException"):
        java.read(servers, topic, 1, importer)


def test_a_bearer_token_is_taken(servers: str, java: JavaKafka, files: Path, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(token("importer"))
    topic, offsets = topic_of(java, "bearer"), list(range(len(MESSAGES)))
    assert java.publish(servers, topic, MESSAGES, by_bearer(files, file)) == offsets


def test_a_wrong_token_is_refused_with_a_sentence(
    new_door: NewDoor, java: JavaKafka, files: Path, tmp_path: Path
) -> None:
    """At a door of its own: an address that fails again and again is refused for a minute."""
    file = tmp_path / "token"
    file.write_text("stolen")
    with new_door("--kafka-tls", "127.0.0.1:0") as own:
        servers = f"localhost:{own.port('kafka+ssl')}"
        with pytest.raises(AssertionError, match=r"SaslAuthenticationException: .*token"):
            java.publish(servers, "stolen", MESSAGES[:1], {**by_bearer(files, file), "max.block.ms": 10_000})
