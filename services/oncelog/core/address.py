"""host:port as one word. The colons of an IPv6 address are kept apart from the port by brackets (RFC 3986, 3.2.2)."""

import re

_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,252}[A-Za-z0-9_.])?", re.ASCII)
_IPV6 = re.compile(r"[0-9A-Fa-f.]*:[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(%[A-Za-z0-9_.-]+)?", re.ASCII)


def join_address(host: str, port: int) -> str:
    """ "host:port". An IPv6 address may come with its brackets or without."""
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"


def host_fault(host: str) -> str | None:
    """What is wrong with a host that others are told to connect to; None: nothing. The port has a field of its own."""
    bare = host.removeprefix("[").removesuffix("]") if host.startswith("[") else host
    if _IPV6.fullmatch(bare) is None and _NAME.fullmatch(bare) is None:
        return f"{host[:100]!r} is no host: give a name or an address alone, without a scheme and without a port"
    if bare.strip("0:.") == "":
        return f"nobody can connect to {host}, which means every address of a machine: give one of them, or a name"
    return None


def split_address(address: str) -> tuple[str, int]:
    """(host, port) of "host:port", without brackets. Raises ValueError: the port is no number."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)
