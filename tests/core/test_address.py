"""host:port addresses, with IPv6 addresses in brackets."""

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
    """A host that already has brackets gets no second pair."""
    assert join_address(host, port) == address
    assert split_address(address) == (host, port)
    assert join_address(address.rpartition(":")[0], port) == address


@pytest.mark.parametrize("address", ["oncelog", "oncelog:", "oncelog:http"])
def test_address_without_a_port_is_refused(address: str) -> None:
    """There is no default port."""
    with pytest.raises(ValueError, match="invalid literal"):
        split_address(address)


@pytest.mark.parametrize(
    "host", ["10.0.0.7", "owner-0.logs.svc", "fd00::7", "[fd00::7]", "fe80::1%eth0", "log_1.example."]
)
def test_connectable_host_is_accepted(host: str) -> None:
    """A host name, an IPv4 address or an IPv6 address."""
    assert host_fault(host) is None


@pytest.mark.parametrize("host", ["10.0.0.7:6650", "oncelog://a", "a b", "", "a/b", "-a", "x" * 300, "[fd00::7]:6650"])
def test_host_that_contains_a_port_is_refused(host: str) -> None:
    """The port has its own setting. With a port in both, clients would get the address a:1:2."""
    assert "give a name or an address" in (host_fault(host) or "")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "[::]"])
def test_wildcard_address_is_refused_as_advertised_host(host: str) -> None:
    """It is valid only for listening: clients would connect to their own machine."""
    assert "others cannot connect to" in (host_fault(host) or "")
