"""Who may open the console: login, its cookie, the rules without authentication, and the headers of every answer."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
import pytest_asyncio

from oncelog.metadata.console.login import next_of
from oncelog.metadata.gateway.inner_request import InnerRequest, answer
from tests.contract.process.security_world import ROOT, secured, token
from tests.contract.rest.admin.admin_world import serving as serving_rest
from tests.contract.rest.console.console_world import Browser, serving, text_of
from tests.contract.rest.lent_apps import lent_app

pytestmark = pytest.mark.asyncio

HOME = "/console/"
LOGIN = "/console/login"


@pytest_asyncio.fixture
async def console(tmp_path: Path) -> AsyncIterator[Browser]:
    """With authentication; nobody is logged in."""
    async with serving(secured(tmp_path)) as browser:
        yield browser


async def test_page_leads_to_the_login_and_back(console: Browser) -> None:
    """With the query of the page. The cookie is the browser's alone, and ends with it."""
    path = "/console/?after=a%26b"
    away = await console.http.get(path)
    assert (away.status_code, away.headers["location"]) == (303, f"{LOGIN}?next=/console/%3Fafter%3Da%2526b")
    form = await console.page(away.headers["location"])
    assert f'name="next" value="{path}"' in form
    back = await console.send(LOGIN, token=token(ROOT), next=path)
    assert (back.status_code, back.headers["location"]) == (303, path)
    cookie = back.headers["set-cookie"]
    assert cookie == f"oncelog_console={token(ROOT)}; HttpOnly; Path=/console; SameSite=strict"
    assert f">{ROOT}</span>" in await console.page(path)


async def test_cookie_over_tls_is_bound_to_the_host(console: Browser) -> None:
    """Also if a proxy speaks TLS: the browser says so in the form's origin. It is accepted as the other one is."""
    secure = {"Origin": console.origin["Origin"].replace("http://", "https://")}
    back = await console.send(LOGIN, secure, token=token(ROOT), next=HOME)
    cookie = back.headers["set-cookie"]
    assert cookie == f"__Host-oncelog={token(ROOT)}; HttpOnly; Path=/; SameSite=strict; Secure"
    await console.page(HOME, headers={"Cookie": f"other={{}}; __Host-oncelog={token(ROOT)}"})


async def test_cookie_that_another_host_may_have_set_does_not_count_over_tls(tmp_path: Path) -> None:
    """A page of a neighbouring host, or one without TLS, could log the viewer in as somebody else."""
    expired = token(ROOT, expires_s=-60)
    with lent_app(None, secured(tmp_path), console={}) as app:  # type: ignore[arg-type]  # the login asks no cluster
        for scheme, name, status in (
            ("https", "oncelog_console", 200), ("https", "__Host-oncelog", 401), ("http", "oncelog_console", 401)
        ):  # fmt: skip
            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(transport=transport, base_url=f"{scheme}://127.0.0.1") as http:
                seen = await http.get(LOGIN, headers={"Cookie": f"{name}={expired}"})
            assert seen.status_code == status, f"{name} over {scheme} counts if its token is said to have expired"


@pytest.mark.hazard("forged-form")
async def test_cookie_counts_only_below_the_console(console: Browser) -> None:
    """So no page of another origin can make a REST request with it."""
    await console.log_in(ROOT)
    cookie = {"Cookie": f"oncelog_console={token(ROOT)}; __Host-oncelog={token(ROOT)}"}
    for path in ("/admin/v2/brokers", "/docs", "/consoles"):
        assert (await console.http.get(path, headers=cookie)).status_code == 401
    # Nor does it when a client sends another header along: then the cookie decides, for it is the viewer's.
    await console.page(HOME, headers={"Authorization": "Basic Zm9vOmJhcg=="})


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("", "this is not a token"),
        ("a b", "this is not a token"),
        ("a;b", "this is not a token"),
        ("é", "this is not a token"),
        ("x.y.z", "the token is not valid here"),
        ("x" * 3_501, "more than 3500 characters"),
        (token(ROOT, expires_s=-60), "the token has expired"),
    ],
)
async def test_bad_token_is_refused_with_its_reason(console: Browser, given: str, reason: str) -> None:
    """And no cookie is set."""
    refused = await console.send(LOGIN, token=given, next=HOME)
    assert refused.status_code in {401, 422}
    assert reason in text_of(refused.text)
    assert "set-cookie" not in refused.headers
    assert not given or given not in refused.text


async def test_expired_cookie_leads_to_the_login_which_says_why(console: Browser) -> None:
    """So that the viewer gets another token, and does not look for a fault."""
    old = {"Cookie": f"oncelog_console={token(ROOT, expires_s=-60)}"}
    assert (await console.http.get(HOME, headers=old)).status_code == 303
    assert "the token has expired" in text_of(await console.page(LOGIN, 401, headers=old))


async def test_replaced_key_ends_every_login(console: Browser, tmp_path: Path) -> None:
    """That is how a leaked token is revoked."""
    await console.log_in(ROOT)
    await console.page(HOME)
    (tmp_path / "token.key").write_bytes(b"another secret of the tests, which is long enough, too")
    assert (await console.http.get(HOME)).headers["location"].startswith(LOGIN)


async def test_login_and_logout_are_refused_from_another_origin(console: Browser) -> None:
    """A page of another origin could log the viewer in as somebody else."""
    other = {"Origin": "http://attacker.example"}
    refused = await console.send(LOGIN, other, token=token(ROOT), next=HOME)
    assert (refused.status_code, "set-cookie" in refused.headers) == (403, False)
    await console.log_in(ROOT)
    assert (await console.send("/console/logout", other)).status_code == 403
    await console.page(HOME)
    assert (await console.send("/console/logout")).status_code == 303
    assert (await console.http.get(HOME)).status_code == 303


@pytest.mark.parametrize(
    "wanted",
    [
        "https://attacker.example/console/", "//attacker.example/console/", "/console//attacker.example",
        "/console/\\attacker.example", "/admin/v2/brokers", "/consoleX/", "javascript:alert(1)", "/console/a\r\nb: c",
        "/console/../admin/v2/brokers/é", "",
    ],
)  # fmt: skip
async def test_login_leads_to_no_other_place(wanted: str) -> None:
    """Otherwise a link to the login of this cluster could end on another host's page that looks like it."""
    assert next_of(wanted) == HOME


async def test_login_keeps_the_page_that_was_wanted() -> None:
    assert next_of("/console/topics?name=a//b&state=held") == "/console/topics?name=a//b&state=held"


@pytest.mark.parametrize(
    "host", ["attacker.example", "attacker.example:8080", "10.0.0.7", "[::2]:1", "127.0.0.1.nip.io", ""]
)
@pytest.mark.hazard("forged-form")
async def test_console_without_authentication_is_refused_under_another_name(host: str) -> None:
    """A page of that name could otherwise resolve it to 127.0.0.1, and read and change this cluster."""
    async with serving() as console:
        text = text_of(await console.page(HOME, 403, headers={"Host": host}))
        assert "turn authentication on (ONCELOG_AUTH_KEY_FILE)" in text
        assert (await console.send(LOGIN, {"Host": host})).status_code == 403


async def test_console_without_authentication_is_for_this_machine() -> None:
    """By the client's address and the name, both."""
    with lent_app(None, console={}) as app:  # type: ignore[arg-type]  # the pages here ask nothing of the cluster
        for client, host, status in (
            ("127.0.0.1", "localhost:8080", 303), ("::1", "[::1]:8080", 303), ("127.8.9.1", "127.0.0.1", 303),
            ("::ffff:127.0.0.1", "localhost", 303), ("::ffff:10.1.2.3", "localhost", 403),
            ("10.1.2.3", "localhost:8080", 403), ("fe80::1", "127.0.0.1", 403),
        ):  # fmt: skip
            transport = httpx.ASGITransport(app, client=(client, 1))
            async with httpx.AsyncClient(transport=transport, base_url="http://h") as http:
                answered = await http.get(LOGIN, headers={"Host": host})
            assert answered.status_code == status, client


async def test_console_is_not_served_over_grpc() -> None:
    """A live page would hold one of the places of that port for ten minutes."""
    with lent_app(None, console={}) as app:  # type: ignore[arg-type]  # as above
        for path in ("/console", HOME, LOGIN, "/console/live?page=/console/"):
            assert (await answer(app, InnerRequest("GET", path), asyncio.Event())).status == 404


async def test_every_answer_keeps_other_origins_out(console: Browser) -> None:
    """Pages, login, errors, redirects and files."""
    style = re.search(r'href="(/console/static/[0-9a-f]{16}/console.css)"', await console.page(LOGIN))
    assert style is not None
    await console.log_in(ROOT)
    for path, status, kept in (
        (HOME, 200, "no-store"), (LOGIN, 200, "no-store"), ("/console/absent", 404, "no-store"),
        ("/console", 308, "no-store"), (style[1], 200, "public, max-age=31536000, immutable"),
        ("/console/static/0123456789abcdef/console.css", 200, "no-store"),
    ):  # fmt: skip
        answered = await console.http.get(path)
        assert (answered.status_code, answered.headers["cache-control"]) == (status, kept)
        policy = answered.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; ")
        assert "unsafe" not in policy
        assert "form-action 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        assert answered.headers["x-content-type-options"] == "nosniff"
        assert answered.headers["referrer-policy"] == "same-origin"


async def test_other_methods_and_paths_are_refused(console: Browser) -> None:
    """As pages. Nothing but the three files is served from the folder."""
    await console.log_in(ROOT)
    for method, path in (
        ("HEAD", HOME), ("TRACE", HOME), ("POST", HOME), ("PUT", HOME), ("DELETE", LOGIN), ("OPTIONS", HOME)
    ):  # fmt: skip
        assert (await console.http.request(method, path)).status_code == 405
    for path in ("x/..%2f..%2frouting.py", "x/__init__.py", "../routes.py", "x/console.css/y"):
        assert (await console.http.get(f"/console/static/{path}")).status_code == 404
    text = text_of(await console.page(f"/console/{quote('<script>alert(1)</script>', safe='')}", 404))
    assert "no such path: /console/<script>alert(1)</script>" in text


async def test_start_page_leads_browsers_to_the_console(console: Browser) -> None:
    """Programs get the page of the REST port, and so do browsers of a cluster without a console."""
    browser = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    led = await console.http.get("/", headers=browser)
    assert (led.status_code, led.headers["location"]) == (303, HOME)
    assert (await console.http.get("/")).status_code == 200
    async with serving_rest() as without:
        assert (await without.http.get("/", headers=browser)).status_code == 200
        assert (await without.http.get(HOME)).status_code == 404
