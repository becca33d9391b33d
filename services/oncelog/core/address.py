"""host:port as one word. The colons of an IPv6 address are kept apart from the port by brackets (RFC 3986, 3.2.2)."""


def join_address(host: str, port: int) -> str:
    """ "host:port". An IPv6 address may come with its brackets or without."""
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"


def split_address(address: str) -> tuple[str, int]:
    """(host, port) of "host:port", without brackets. Raises ValueError: the port is no number."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)
