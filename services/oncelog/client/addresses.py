"""`oncelog://host:port[,host:port]`: the metadata services a client begins with. `oncelog+tls://…`: they speak TLS."""

import re

from oncelog.core.errors import InvalidArgument

DEFAULT_PORT = 6650
_SCHEME = "oncelog://"
_TLS_SCHEME = "oncelog+tls://"
_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9_.-]+)(?::([0-9]{1,5}))?", re.ASCII)


def parse_url(url: str) -> tuple[str, ...]:
    """Return "host:port" of each address, in order; the port is 6650 where it is left out. Raises InvalidArgument."""
    scheme = next((scheme for scheme in (_SCHEME, _TLS_SCHEME) if str(url).startswith(scheme)), None)
    if scheme is None:
        message = "a service URL is oncelog://host:port[,host:port], or oncelog+tls://… for a cluster that speaks TLS"
        raise InvalidArgument(message, field="url")
    addresses = []
    for part in url.removeprefix(scheme).rstrip("/").split(","):
        match = _HOST.fullmatch(part.strip())
        port = DEFAULT_PORT if match is None or match[2] is None else int(match[2])
        if match is None or not 0 < port < 65_536:
            raise InvalidArgument(f"{part[:100]!r} is not host:port", field="url")
        addresses.append(f"{match[1]}:{port}")
    return tuple(addresses)


def speaks_tls(url: str) -> bool:
    """Whether the URL says that the cluster speaks TLS."""
    return url.startswith(_TLS_SCHEME)
