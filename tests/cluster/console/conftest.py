"""The cluster of this folder's tests, with TLS and tokens, and browsers that are logged in to its console."""

import ssl
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, Page, expect

import oncelog
from tests.cluster.cluster_fixture import DEADLINE_S, Cluster
from tests.cluster.console.browser import Complaints, chromium
from tests.console_proof.busy_cluster import NAMESPACE, SETTINGS, fill
from tests.contract.process.security_world import auth_environment, bearer, tls_environment, token

expect.set_options(timeout=DEADLINE_S * 1000)
#: All tests of the folder use one browser, so they share its event loop.
in_browser = pytest.mark.asyncio(loop_scope="package")


@pytest.fixture(scope="package")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("console")


@pytest.fixture(scope="package")
def cluster(files: Path) -> Iterator[Cluster]:
    """With one process of each kind."""
    variables = tls_environment(files, names=["127.0.0.1"]) | auth_environment(files)
    settings = {name.removeprefix("ONCELOG_").lower(): value for name, value in variables.items()} | SETTINGS
    with Cluster.running(files, storage_nodes=1, owners=1, **settings) as own:  # type: ignore[arg-type]
        own.rest = {"headers": bearer("root"), "verify": ssl.create_default_context(cafile=str(files / "ca.crt"))}
        yield own


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def client(cluster: Cluster, files: Path) -> AsyncIterator[oncelog.AsyncClient]:
    """A superuser's. The cluster has something to see."""
    async with oncelog.AsyncClient(
        cluster.url, token=token("root"), tls_ca_file=files / "ca.crt", operation_timeout=DEADLINE_S
    ) as connected:
        await fill(cluster, connected, messages=80, kill=False)
        await cluster.change("POST", f"/admin/v2/namespaces/{NAMESPACE}/permissions/reader", json=["consume"])
        yield connected


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as running:
        yield running


@dataclass(frozen=True, slots=True)
class Visitor:
    """A window of a browser. complaints: of its pages, see `Complaints`."""

    context: BrowserContext
    page: Page
    complaints: Complaints


@pytest_asyncio.fixture(loop_scope="package")
async def visitor(browser: Browser, cluster: Cluster) -> AsyncIterator[Visitor]:
    """Not logged in. At the end of the test no page may have complained."""
    async with await browser.new_context(base_url=cluster.admin_url, ignore_https_errors=True) as context:
        complaints = Complaints(context, urlsplit(cluster.admin_url).netloc)
        yield Visitor(context, await context.new_page(), complaints)
    assert complaints.found == []


async def log_in(visitor: Visitor, role: str, path: str, *, expires_s: int | None = None) -> Page:
    """The page at this path, for a new login with a token of this role."""
    page = visitor.page
    await page.goto(path)
    await page.get_by_label("Token").fill(token(role, expires_s=expires_s))
    await page.get_by_role("button", name="Log in").click()
    await expect(page.get_by_role("button", name="Log out")).to_be_visible()
    await listens(page)
    return page


async def listens(page: Page) -> None:
    """Wait until the script of the page that is shown has run: a key that is pressed earlier does nothing."""
    await expect(page.locator("html.js")).to_be_attached()
