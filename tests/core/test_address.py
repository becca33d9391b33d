"""host:port: IPv6 addresses keep their colons to themselves."""

import pytest

from oncelog.core.address import host_fault, join_address, split_address


@pytest.mark.parametrize(
    ("host", "port", "address"),
    [
        ("10.0.0.7", 6650, "10.0.0.7:6650"),
        ("oncelog-owner-0.here.svc", 1, "oncelog-owner-0.here.svc:1"),
        ("fd00::7", 6650, "[fd00::7]:6650"),
        ("::", 0, "[::]:0"),
    ],
)
def test_joined_host_and_port_are_split_again(host: str, port: int, address: str) -> None:
    """A record may keep the host as it was in an address: brackets are put on once."""
    assert join_address(host, port) == address
    assert split_address(address) == (host, port)
    assert join_address(address.rpartition(":")[0], port) == address


@pytest.mark.parametrize("address", ["oncelog", "oncelog:", "oncelog:http"])
def test_address_without_a_port_is_refused(address: str) -> None:
    """Nobody guesses one."""
    with pytest.raises(ValueError, match="invalid literal"):
        split_address(address)


@pytest.mark.parametrize(
    "host", ["10.0.0.7", "owner-0.logs.svc", "fd00::7", "[fd00::7]", "fe80::1%eth0", "log_1.example."]
)
def test_connectable_host_is_accepted(host: str) -> None:
    """A name, or an address of either kind."""
    assert host_fault(host) is None


@pytest.mark.parametrize("host", ["10.0.0.7:6650", "oncelog://a", "a b", "", "a/b", "-a", "x" * 300, "[fd00::7]:6650"])
def test_host_that_contains_a_port_is_refused(host: str) -> None:
    """The port has a setting of its own: with both, clients would be told a:1:2."""
    assert "give a name or an address" in (host_fault(host) or "")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "[::]"])
def test_wildcard_address_is_refused_as_advertised_host(host: str) -> None:
    """It is for listening alone; clients would look on their own machine."""
    assert "others cannot connect to" in (host_fault(host) or "")
