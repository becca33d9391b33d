"""Chromium for the tests of the console, and pages whose complaints are kept.

The browser is that of the system: nothing is downloaded. A page complains if its console shows a warning or an error
(a violation of the content security policy is one), if a script of it raises or opens a dialog, or if it asks another
host.
"""

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Dialog, Page, Request, async_playwright

_LEVELS = {"warning", "error"}


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """A browser without a window. As root, Chromium starts without its sandbox only."""
    path = shutil.which("chromium")
    assert path is not None, "install chromium"
    arguments = ["--no-sandbox"] if os.getuid() == 0 else []
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=arguments)
        try:
            yield browser
        finally:
            await browser.close()


class Complaints:
    """What the pages of a context complained about, in order."""

    def __init__(self, context: BrowserContext, host: str) -> None:
        self.found: list[str] = []
        self._expected: list[str] = []
        self._host = host
        context.on("console", self._console)
        context.on("weberror", lambda error: self.found.append(f"{error.error}"))
        context.on("request", self._request)
        context.on("dialog", self._dialog)

    def expected(self, part: str) -> None:
        """From now on a message with this part is no complaint: the test provokes it."""
        self._expected.append(part)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in _LEVELS and not any(part in message.text for part in self._expected):
            self.found.append(f"{message.type}: {message.text} ({message.location.get('url')})")

    async def _dialog(self, dialog: Dialog) -> None:
        self.found.append(f"a script asks: {dialog.message}")
        await dialog.dismiss()

    def _request(self, request: Request) -> None:
        address = urlsplit(request.url)
        if address.scheme not in {"data", "about"} and address.netloc != self._host:
            self.found.append(f"asked another host: {request.url}")


async def violations(page: Page, rule: str | None = None) -> list[str]:
    """What axe finds against WCAG 2 A and AA and good practice, or one rule: its name, help and the first elements."""
    options = None if rule is None else {"runOnly": [rule]}
    found: list[dict[str, Any]] = (await Axe().run(page, options=options)).response["violations"]
    return [f"{each['id']}: {each['help']}: {[node['html'][:200] for node in each['nodes'][:3]]}" for each in found]


async def cut_tables(page: Page) -> list[str]:
    """The tables that are wider than their place, so that a viewer must scroll to see all columns."""
    script = "all => all.filter(one => one.scrollWidth > one.clientWidth).map(one => one.getAttribute('aria-label'))"
    found: list[str] = await page.locator(".scroll").evaluate_all(script)
    return found


async def cut_labels(page: Page) -> list[str]:
    """In a narrow window: the labels of cells that are higher than their cells, and so lie over the next one."""
    script = (
        "all => all.filter(one => parseFloat(getComputedStyle(one, '::before').height) > one.clientHeight + 1)"
        ".map(one => one.dataset.label)"
    )
    found: list[str] = await page.locator("td[data-label]:visible").evaluate_all(script)
    return found


async def overflow(page: Page) -> int:
    """By how many pixels the page is wider than the window."""
    wider: int = await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    return wider
