"""Which HTTP requests are taken without authentication."""

import pytest

from oncelog.core.errors import InvalidArgument, PermissionDenied
from oncelog.runtime.observing.http_hosts import HttpHosts
from oncelog.runtime.security import Security
from oncelog.runtime.settings import MetadataSettings, load

pytestmark = pytest.mark.hazard("forged-form")


def takes(hosts: HttpHosts, method: str = "DELETE", **headers: str) -> bool:
    """headers: underscores stand for hyphens."""
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        hosts.check(method, given.get)
    except PermissionDenied:
        return False
    return True


@pytest.mark.parametrize(
    "host", ["localhost", "LocalHost:8080", "localhost.", "127.0.0.1:8080", "[::1]:8080", "10.1.2.3", "[fe80::1]:1"]
)
def test_loopback_names_and_addresses_are_taken(host: str) -> None:
    """An address cannot be rebound: a page that a browser has from it comes from this very process."""
    assert takes(HttpHosts(), host=host)


@pytest.mark.parametrize(
    "host", ["attacker.example", "127.0.0.1.nip.io:80", "localhost.attacker.example", "", "[", "oncelog", "1"]
)
def test_other_names_are_refused(host: str) -> None:
    """Whoever has the name can make it point to 127.0.0.1, and a browser then lets its page read the answers."""
    assert not takes(HttpHosts(), host=host)


def test_operator_widens_the_names() -> None:
    """By a setting. Names that the cluster advertises need none."""
    hosts = Security.of(
        load(
            MetadataSettings,
            {"ONCELOG_HTTP_HOSTS": "log.example, .svc.cluster.local", "ONCELOG_ADVERTISED_HOST": "Meta-1"},
        )
    ).open_to
    assert hosts is not None
    for host, taken in (
        ("LOG.example:8080", True), ("meta-1", True), ("a.b.svc.cluster.local", True), ("svc.cluster.local", False),
        ("x.log.example", False), ("evilsvc.cluster.local", False),
    ):  # fmt: skip
        assert takes(hosts, host=host) == taken, host
    assert takes(HttpHosts.of("*"), host="attacker.example")
    with pytest.raises(InvalidArgument, match="ONCELOG_HTTP_HOSTS: 'http://x' is not a host"):
        load(MetadataSettings, {"ONCELOG_HTTP_HOSTS": "http://x"})


@pytest.mark.parametrize(
    ("origin", "taken"),
    [
        ("http://10.0.0.7:8080", True),
        ("http://10.0.0.7:8081", False),
        ("https://attacker.example", False),
        ("null", False),
        ("http://[", False),
        ("", False),
    ],
)
def test_page_of_another_origin_is_refused(origin: str, taken: bool) -> None:
    """Browsers send Origin with every POST of a page, also to hosts that get no Sec-Fetch-Site."""
    assert takes(HttpHosts(), "POST", host="10.0.0.7:8080", origin=origin) == taken
    assert not takes(HttpHosts(), "POST", origin=origin)


def test_page_of_another_site_is_refused_and_a_link_is_not() -> None:
    """A browser shows what a link leads to to its user alone. A frame or an image of another site is no link."""
    link = {"host": "localhost", "sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate"}
    assert takes(HttpHosts(), "GET", **link, sec_fetch_dest="document")
    assert not takes(HttpHosts(), "GET", **link, sec_fetch_dest="iframe")
    assert not takes(HttpHosts(), "POST", **link, sec_fetch_dest="document")
    assert not takes(HttpHosts(), "GET", host="localhost", sec_fetch_site="cross-site")
    for site in ("same-origin", "none"):
        assert takes(HttpHosts(), host="localhost", sec_fetch_site=site)
