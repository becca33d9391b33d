"""Service URLs, `oncelog://host:port[,host:port]`: the metadata services, and how a client reaches the topic owners.

oncelog://             unencrypted; each owner at the address that it advertises
oncelog+tls://         the same, with TLS
oncelog+proxy://       unencrypted; the metadata services forward everything to the owners, as gateways
oncelog+proxy+tls://   the same, with TLS
"""

import re
from enum import Enum
from urllib.parse import urlsplit

from oncelog.core.errors import InvalidArgument

DEFAULT_PORT = 6650
_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9_.-]+)(?::([0-9]{1,5}))?", re.ASCII)


class Routing(Enum):
    """How a client reaches topic owners.

    ADVERTISED: each at the address that it advertises to clients. PROXY: all at the address of a metadata service,
    which forwards everything. INTERNAL: each at its own address; only for the cluster's services.
    """

    ADVERTISED = "advertised"
    PROXY = "proxy"
    INTERNAL = "internal"


#: {scheme: (whether it is TLS, the routing)}
_SCHEMES = {
    "oncelog://": (False, Routing.ADVERTISED),
    "oncelog+tls://": (True, Routing.ADVERTISED),
    "oncelog+proxy://": (False, Routing.PROXY),
    "oncelog+proxy+tls://": (True, Routing.PROXY),
    "oncelog+tls+proxy://": (True, Routing.PROXY),
}


def parse_url(url: str) -> tuple[str, ...]:
    """Return "host:port" of each address, in order; the default port is 6650. Raises InvalidArgument."""
    addresses = []
    for part in url.removeprefix(_scheme(url)).rstrip("/").split(","):
        match = _HOST.fullmatch(part.strip())
        port = DEFAULT_PORT if match is None or match[2] is None else int(match[2])
        if not part.strip():
            message = f"url {without_password(url)[:100]!r} lacks a host: write {_scheme(url)}host:port"
            raise InvalidArgument(message, field="url")
        if match is None or not 0 < port < 65_536:
            raise InvalidArgument(f"url: {without_password(part)[:100]!r} is not host:port", field="url")
        addresses.append(f"{match[1]}:{port}")
    return tuple(addresses)


def parse_http_url(url: str, option: str) -> str:
    """The REST address http[s]://HOST:PORT without whitespace at its ends and without a slash at its end; a user and a
    path may be in it. option: how the user has given it, for errors. Raises InvalidArgument, whose message has no
    password."""
    text = url.strip()
    try:
        found = urlsplit(text)
        usable = found.scheme in {"http", "https"} and bool(found.hostname) and found.port != 0
    except ValueError:
        usable = False
    if not usable or not text.isprintable() or set(text).intersection(" ?#"):
        message = f"{option} must be http[s]://HOST:PORT, not {without_password(text)[:200]!r}"
        raise InvalidArgument(message, field="admin_url")
    return text.rstrip("/")


def without_password(url: str) -> str:
    """The URL, or a part of one, as messages may show it: without user and password, if there are any."""
    start = url.find("//") + 2 if "//" in url else 0
    rest = url[start:]
    return f"{url[:start]}…@{rest.rpartition('@')[2]}" if "@" in rest else url


def speaks_tls(url: str) -> bool:
    """Whether the URL is for a cluster with TLS. Raises InvalidArgument."""
    return _SCHEMES[_scheme(url)][0]


def routing_of(url: str) -> Routing:
    """How topic owners are reached by this URL. Raises InvalidArgument."""
    return _SCHEMES[_scheme(url)][1]


def is_proxy_url(url: str) -> bool:
    """Whether this is a service URL by which the metadata services forward everything."""
    return any(url.startswith(scheme) for scheme, (_, routing) in _SCHEMES.items() if routing is Routing.PROXY)


def is_service_url(url: str) -> bool:
    """Whether the URL is one of this module's, rather than of HTTP."""
    return any(url.startswith(scheme) for scheme in _SCHEMES)


def _scheme(url: str) -> str:
    scheme = next((scheme for scheme in _SCHEMES if str(url).startswith(scheme)), None)
    if scheme is None:
        raise InvalidArgument(
            "url must be oncelog://host:port[,host:port], or oncelog+tls://… for a cluster with TLS; where only the "
            "metadata services can be reached, oncelog+proxy://… or oncelog+proxy+tls://…. It is "
            f"{without_password(str(url))[:100]!r}",
            field="url",
        )
    return scheme
