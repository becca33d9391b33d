"""One page of the console in Chromium, over TLS, with a login. `test_pages.py` has all of them: a proof."""

from playwright.async_api import expect

import oncelog
from tests.cluster.console.addresses import topic_page
from tests.cluster.console.browser import cut_tables, overflow, violations
from tests.cluster.console.conftest import Visitor, in_browser, log_in
from tests.console_proof.busy_cluster import MARKUP, ORDERS

pytestmark = in_browser


async def test_page_of_a_topic_is_live_accessible_and_shows_values_as_text(
    visitor: Visitor, client: oncelog.AsyncClient
) -> None:
    """The page with most parts: its script runs, axe finds nothing in it, and nothing that is stored becomes HTML. The
    fixture checks that nothing broke the content security policy."""
    page = await log_in(visitor, "root", topic_page(ORDERS))
    await expect(page.locator("#live")).to_have_text("live")
    assert await violations(page) == []
    await page.set_viewport_size({"width": 360, "height": 800})
    assert await overflow(page) <= 0
    assert await cut_tables(page) == []
    await expect(page.locator("main")).to_contain_text(MARKUP[:20])
    await expect(page.locator("main img, main script")).to_have_count(0)
