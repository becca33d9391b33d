"""What a viewer may change in the console, in Chromium: with the right, and after a typed confirmation."""

from playwright.async_api import expect

import oncelog
from tests.cluster.console.addresses import topic_page
from tests.cluster.console.conftest import Visitor, in_browser, log_in

pytestmark = in_browser
TOPIC = "public/shop/unloaded"


async def test_action_is_refused_without_its_right(visitor: Visitor, client: oncelog.AsyncClient) -> None:
    """A reader gets a page that names the right, and no form."""
    visitor.complaints.expected("status of 403")
    page = await log_in(visitor, "reader", "/console/")
    await page.goto(topic_page(TOPIC, "unload"))
    await expect(page.locator("main")).to_contain_text("no right to admin")
    await expect(page.locator("main form")).to_have_count(0)
