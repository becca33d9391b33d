"""Addresses as "host:port"; an IPv6 host is written in brackets (RFC 3986, 3.2.2)."""

import re

_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,252}[A-Za-z0-9_.])?", re.ASCII)
_IPV6 = re.compile(r"[0-9A-Fa-f.]*:[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(%[A-Za-z0-9_.-]+)?", re.ASCII)


def join_address(host: str, port: int) -> str:
    """ "host:port". An IPv6 host may be given with or without brackets."""
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"


def host_fault(host: str) -> str | None:
    """Why other processes could not connect to this host; None when they could. The host must not include a port."""
    bare = host.removeprefix("[").removesuffix("]") if host.startswith("[") else host
    if _IPV6.fullmatch(bare) is None and _NAME.fullmatch(bare) is None:
        return f"{host[:100]!r} is not a host: give a name or an address, without scheme and port"
    if bare.strip("0:.") == "":
        return (
            f"others cannot connect to {host}, which stands for all addresses of a machine: give an address or a name"
        )
    return None


def split_address(address: str) -> tuple[str, int]:
    """(host, port) of "host:port", without brackets. Raises ValueError when the port is not a number."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)
