"""The console on a real port, over a metadata replica whose store is in memory."""

import html
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from oncelog.runtime.security import OPEN, Security
from tests.contract.process.security_world import token
from tests.contract.rest.admin.admin_world import Admin
from tests.contract.rest.admin.admin_world import serving as serving_rest

PACE = 0.02


@dataclass
class Browser:
    """A browser at the console. admin: the cluster behind it, and REST without the cookie."""

    admin: Admin
    http: httpx.AsyncClient

    @property
    def origin(self) -> dict[str, str]:
        """The header that a browser adds to a form of this console."""
        return {"Origin": f"http://127.0.0.1:{self.admin.port}"}

    async def page(self, path: str, status: int = 200, **options: Any) -> str:
        """The HTML of a page."""
        answer = await self.http.get(path, **options)
        assert answer.status_code == status, answer.text
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        return answer.text

    async def log_in(self, role: str, **options: Any) -> httpx.Response:
        return await self.send("/console/login", token=token(role, **options), next="/console/")

    async def send(self, path: str, headers: dict[str, str] | None = None, **fields: str) -> httpx.Response:
        """Send a form as a browser would. headers: instead of the origin."""
        return await self.http.post(path, data=fields, headers=self.origin if headers is None else headers)


@asynccontextmanager
async def serving(security: Security = OPEN, **options: Any) -> AsyncIterator[Browser]:
    """options: of the console. Nobody waits for the seconds that its pages usually take to show what has changed."""
    async with (
        serving_rest(security, console={"pace": PACE} | options) as admin,
        httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{admin.port}", timeout=30, limits=httpx.Limits(), verify=False
        ) as http,
    ):
        yield Browser(admin, http)


def text_of(page: str) -> str:
    """What a reader sees of it: words, one space between them."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", page)).split())


def block_of(page: str, name: str) -> str:
    """The HTML of the block with this id."""
    found = re.search(rf'<section id="{name}" class="block">.*?</section>', page, re.DOTALL)
    assert found is not None, f"no block {name}"
    return found[0]


async def confirmed(browser: Browser, path: str, said: str = "") -> str:
    """The token of the form on the page of an action. said: what the page says would be lost."""
    page = await browser.page(path)
    assert said in text_of(page)
    found = re.search(r'name="csrf" value="([0-9a-f]+)"', page)
    assert found is not None
    return found[1]


def seen_of(page: str) -> str:
    """The figures that the form on the page of an action carries; empty: it carries none."""
    found = re.search(r'name="seen" value="([^"]*)"', page)
    return html.unescape(found[1]) if found else ""
