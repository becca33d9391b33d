"""host:port: IPv6 addresses keep their colons to themselves."""

import pytest

from oncelog.core.address import join_address, split_address


@pytest.mark.parametrize(
    ("host", "port", "address"),
    [
        ("10.0.0.7", 6650, "10.0.0.7:6650"),
        ("oncelog-owner-0.here.svc", 1, "oncelog-owner-0.here.svc:1"),
        ("fd00::7", 6650, "[fd00::7]:6650"),
        ("::", 0, "[::]:0"),
    ],
)
def test_what_is_joined_comes_apart_again(host: str, port: int, address: str) -> None:
    """A record may keep the host as it was in an address: brackets are put on once."""
    assert join_address(host, port) == address
    assert split_address(address) == (host, port)
    assert join_address(address.rpartition(":")[0], port) == address


@pytest.mark.parametrize("address", ["oncelog", "oncelog:", "oncelog:http"])
def test_what_has_no_port_is_no_address(address: str) -> None:
    """Nobody guesses one."""
    with pytest.raises(ValueError, match="invalid literal"):
        split_address(address)
