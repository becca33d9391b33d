"""What a viewer may change in the console, in Chromium: with the right, and after a typed confirmation."""

import re

from playwright.async_api import expect

import oncelog
from tests.cluster.cluster_fixture import Cluster
from tests.cluster.console.addresses import topic_page
from tests.cluster.console.browser import violations
from tests.cluster.console.conftest import Visitor, in_browser, log_in

pytestmark = in_browser
TOPIC = "public/shop/unloaded"


async def test_topic_is_unloaded_after_its_name_was_typed(
    visitor: Visitor, cluster: Cluster, client: oncelog.AsyncClient
) -> None:
    """Another name changes nothing. Afterwards the topic has a new owner epoch."""
    producer = await client.create_producer(TOPIC, producer_name="importer")
    await producer.send(b"one")
    epoch = (await cluster.stats(TOPIC))["owner_epoch"]
    page = await log_in(visitor, "root", topic_page(TOPIC, "unload"))
    assert await violations(page) == []
    visitor.complaints.expected("status of 422")
    await page.get_by_label("to confirm").fill("public/shop/other")
    await page.get_by_role("button", name="Unload").click()
    await expect(page.get_by_role("alert")).to_contain_text("nothing was done")
    assert (await cluster.stats(TOPIC))["owner_epoch"] == epoch
    await page.get_by_label("to confirm").fill(TOPIC)
    await page.get_by_role("button", name="Unload").click()
    await expect(page).to_have_url(re.compile(re.escape(topic_page(TOPIC))))
    await producer.send(b"two")
    assert (await cluster.served_by_another(TOPIC, epoch))["message_count"] == 2
    await producer.close()


async def test_action_is_refused_without_its_right(visitor: Visitor, client: oncelog.AsyncClient) -> None:
    """A reader gets a page that names the right, and no form."""
    visitor.complaints.expected("status of 403")
    page = await log_in(visitor, "reader", "/console/")
    await page.goto(topic_page(TOPIC, "unload"))
    await expect(page.locator("main")).to_contain_text("no right to admin")
    await expect(page.locator("main form")).to_have_count(0)
