"""CONNECT and look-ups."""

from dataclasses import replace

import pytest

from oncelog_doors.core.pulsar.connecting import (
    BASIC,
    LOGICAL_ADDRESS,
    LOGICAL_ADDRESS_TLS,
    PLACE,
    Admitted,
    Connect,
    admission,
    message_bytes_max,
)
from oncelog_doors.core.pulsar.families import ClientFamily, family_of
from oncelog_doors.core.pulsar.server_errors import Refusal

PLAIN = Connect(20)
TOKEN = Connect(20, "token", b"a.b.c")
MIB = 1024 * 1024


@pytest.mark.parametrize(("version", "admitted"), [(6, 6), (19, 19), (20, 20), (21, 20), (2**31 - 1, 20)])
def test_lower_version_counts(version: int, admitted: int) -> None:
    """And none above 20."""
    assert admission(Connect(version), authentication=False) == Admitted(admitted, None)


@pytest.mark.parametrize("version", [0, 5, -1])
def test_version_without_checksums_is_refused(version: int) -> None:
    refused = admission(Connect(version), authentication=False)
    assert isinstance(refused, Refusal)
    assert refused.code == 10
    assert f"version {version}" in refused.sentence


@pytest.mark.parametrize("authentication", [True, False])
def test_door_is_no_proxy(authentication: bool) -> None:
    """The client names the logical broker of the look-up, or nothing."""
    for address in ("", LOGICAL_ADDRESS, LOGICAL_ADDRESS_TLS):
        assert isinstance(admission(replace(TOKEN, proxy_to=address), authentication=authentication), Admitted)
    for address in ("169.254.169.254:80", "oncelog:6652", "oncelog", f"pulsar://{LOGICAL_ADDRESS}", " "):
        refused = admission(replace(TOKEN, proxy_to=address), authentication=authentication)
        assert isinstance(refused, Refusal), address
        assert refused.code == 22
    assert PLACE.url == f"pulsar://{LOGICAL_ADDRESS}"
    assert PLACE.url_tls == f"pulsar+ssl://{LOGICAL_ADDRESS_TLS}"


@pytest.mark.parametrize("authentication", [True, False])
def test_nobody_speaks_for_another(authentication: bool) -> None:
    """A proxy of Pulsar says for whom it speaks; only the cluster's own rights do that here."""
    refused = admission(replace(TOKEN, original_principal="admin"), authentication=authentication)
    assert isinstance(refused, Refusal)
    assert refused.code == 3


@pytest.mark.parametrize(
    ("method", "credentials", "token"),
    [
        ("token", b"a.b.c", "a.b.c"),
        ("token", b"a.b.c\n", "a.b.c"),
        (BASIC, b"anyone:a.b.c", "a.b.c"),
        (BASIC, b":a.b.c", "a.b.c"),
    ],
)
def test_token_is_found(method: str, credentials: bytes, token: str) -> None:
    """Alone, or as a password."""
    assert admission(Connect(20, method, credentials), authentication=True) == Admitted(20, token)


@pytest.mark.parametrize(
    ("method", "credentials", "said"),
    [
        ("", b"", "method none"),
        ("none", b"", "method 'none'"),
        ("tls", b"", "method 'tls'"),
        ("token", b"", "empty"),
        ("token", b"\n", "empty"),
        ("token", b"a\xff", "outside ASCII"),
        (BASIC, b"a.b.c", "user:token"),
        (BASIC, b"anyone:", "empty"),
        ("x" * 1000, b"a", "'xxxxxxxxxxxxxxxxxxxx'"),
    ],
)
def test_without_a_token_nobody_is_admitted(method: str, credentials: bytes, said: str) -> None:
    """Code 3; what was sent is not in the sentence."""
    refused = admission(Connect(20, method, credentials), authentication=True)
    assert isinstance(refused, Refusal)
    assert refused.code == 3
    assert said in refused.sentence


@pytest.mark.parametrize("method", ["", "none", "token", "tls"])
def test_without_authentication_credentials_are_not_read(method: str) -> None:
    """As a broker without authentication does."""
    assert admission(Connect(20, method, b"\xff"), authentication=False) == Admitted(20, None)


@pytest.mark.hazard("lookup-that-fails")
def test_every_lookup_has_one_answer() -> None:
    """It is a constant: nothing can be asked and nothing can fail. Both addresses are set, because a client with TLS
    reads that one alone."""
    assert PLACE.through_service_url
    assert PLACE.authoritative
    assert PLACE.url
    assert PLACE.url_tls


@pytest.mark.hazard("limit-below-a-waiting-message")
@pytest.mark.parametrize(
    ("limit", "offered"),
    [(5 * MIB, 5 * MIB - 4096), (64 * MIB, 64 * MIB - 4096), (MIB, 5 * MIB - 4096), (0, 5 * MIB - 4096)],
)
def test_client_never_gets_a_limit_below_its_default(limit: int, offered: int) -> None:
    """It keeps the number for the whole process, and fails larger messages that wait already."""
    assert message_bytes_max(limit) == offered


@pytest.mark.parametrize(
    ("version", "family"),
    [
        ("Pulsar-Java-v4.0.7", ClientFamily.JAVA),
        ("Pulsar-Java-v4.0.7-orders", ClientFamily.JAVA),
        ("Pulsar-CPP-v4.2.0", ClientFamily.CPP),
        ("Pulsar-CPP-v3.5.1-Pulsar-Java-v4.0.0", ClientFamily.CPP),
        ("Pulsar-Go-v0.18.0", ClientFamily.GO),
        ("Pulsar-Go-version-unknown", ClientFamily.GO),
        ("Pulsar Go 0.1", ClientFamily.GO),
        ("2.8.0", ClientFamily.UNKNOWN),
        ("DotPulsar", ClientFamily.UNKNOWN),
        ("pulsar-java-v4", ClientFamily.UNKNOWN),
        ("", ClientFamily.UNKNOWN),
    ],
)
def test_family_is_known_by_its_version(version: str, family: ClientFamily) -> None:
    """By how it begins: what an application adds does not count."""
    assert family_of(version) is family
    assert family.counts_openings is (family is not ClientFamily.UNKNOWN)
