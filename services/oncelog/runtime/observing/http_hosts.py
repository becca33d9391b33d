"""Which HTTP requests are taken without authentication: a page of another origin must not read or change a cluster.

A browser sends requests for any page that its user visits, from inside the user's network. Without authentication
nothing else tells them from requests of the user. Rules
- The name in `Host` is an IP address, a loopback name, or one that the operator has named. A page can make a name of
  its own point to 127.0.0.1 (DNS rebinding), but the browser still sends that name. Nobody can rebind an address.
- `Origin`, if there is one, names the same host. Browsers send it with each request of a page that is no GET.
- `Sec-Fetch-Site` is not `cross-site`, except when a user follows a link: then the page that has it sees no answer.
- A request without `Host` passes: every browser sends one.
With authentication a request needs a token in a header, which a page of another origin does not have.
"""

import ipaddress
import os
from collections.abc import Callable
from dataclasses import dataclass

from oncelog.core.address import host_fault
from oncelog.core.errors import InvalidArgument, PermissionDenied

VARIABLE = "ONCELOG_HTTP_HOSTS"
#: An entry of the setting: every name is taken.
ANY = "*"


@dataclass(frozen=True, slots=True)
class HttpHosts:
    """names: further names, in lower case; `.example` stands for every name below example, `*` for all."""

    names: frozenset[str] = frozenset()

    @classmethod
    def of(cls, text: str, *more: str) -> "HttpHosts":
        """text: names separated by commas. more: further names; empty ones count as none. Raises InvalidArgument."""
        names = [each.strip().lower() for each in text.split(",") if each.strip()]
        for name in names:
            if name != ANY and (fault := host_fault(name.removeprefix("."))) is not None:
                raise InvalidArgument(f"{VARIABLE}: {fault}", field="http_hosts")
        return cls(frozenset(names) | {each.lower() for each in more if each})

    @classmethod
    def of_environment(cls) -> "HttpHosts":
        """For a program that is no service. Raises InvalidArgument."""
        return cls.of(os.environ.get(VARIABLE, ""))

    def check(self, method: str, header: Callable[[str], str | None]) -> None:
        """header: the value of a header, by its lower-case name; None: it is missing. Raises PermissionDenied."""
        host = header("host")
        if host is not None and not self._takes(name_in(host)):
            raise PermissionDenied(
                f"authentication is off, and {host[:100]!r} in the header Host is neither an IP address nor localhost: "
                f"connect by one of these, name this host in {VARIABLE}, or turn authentication on "
                "(ONCELOG_AUTH_KEY_FILE)"
            )
        origin = header("origin")
        if origin is not None and not (host and origin.partition("://")[2].lower() == host.lower()):
            raise PermissionDenied(
                f"authentication is off, so no page of another origin is answered, as {origin[:100]!r} is: turn "
                "authentication on (ONCELOG_AUTH_KEY_FILE)"
            )
        followed = method in {"GET", "HEAD"} and (header("sec-fetch-mode"), header("sec-fetch-dest")) == (
            "navigate",
            "document",
        )
        if header("sec-fetch-site") == "cross-site" and not followed:
            raise PermissionDenied(
                "authentication is off, so no page of another site is answered (Sec-Fetch-Site: cross-site): turn "
                "authentication on (ONCELOG_AUTH_KEY_FILE)"
            )

    def _takes(self, name: str) -> bool:
        if ANY in self.names or name in self.names or is_loopback(name) or _address(name) is not None:
            return True
        return any(each.startswith(".") and name.endswith(each) for each in self.names)


#: No further names.
OWN_NAMES = HttpHosts()


def name_in(host: str) -> str:
    """The name or address in a header `Host`, in lower case, without port and brackets."""
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    return name.lower().removesuffix(".")


def is_loopback(name: str) -> bool:
    """Whether this is a name or an address of the machine itself."""
    address = _address(name)
    if address is None:
        return name == "localhost"
    # A socket for both families names an IPv4 client like ::ffff:127.0.0.1.
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None
