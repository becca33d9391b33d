"""Every page of the console in Chromium, over TLS, with a login: what a person sees, with and without a script."""

import re

import pytest
from playwright.async_api import Browser, ViewportSize, expect

import oncelog
from oncelog.metadata.console.pages import PAGES
from oncelog.runtime.tokens import LEEWAY_S
from tests.cluster.cluster_fixture import Cluster
from tests.cluster.console.addresses import pages, topic_page
from tests.cluster.console.browser import cut_labels, cut_tables, overflow, violations
from tests.cluster.console.conftest import Visitor, in_browser, listens, log_in
from tests.console_proof.busy_cluster import MARKUP, ORDERS, SUBSCRIPTION
from tests.contract.process.security_world import token

pytestmark = in_browser
ADDRESSES = pages(ORDERS, SUBSCRIPTION)
NARROW: ViewportSize = {"width": 360, "height": 800}
WIDE: ViewportSize = {"width": 1280, "height": 900}
ASKED = "/console/?shown=this"
each_page = pytest.mark.parametrize("name", sorted(ADDRESSES))


@each_page
async def test_page_is_accessible_and_fits_a_phone(visitor: Visitor, client: oncelog.AsyncClient, name: str) -> None:
    """Light and dark, axe finds nothing; at 1,280 and at 360 pixels nothing is cut off. Nothing that is stored runs as
    a script, and nothing breaks the content security policy (the fixture checks complaints)."""
    page = await log_in(visitor, "root", ADDRESSES[name])
    assert await violations(page) == []
    await page.emulate_media(color_scheme="dark")
    assert await violations(page, "color-contrast") == []
    for size in (WIDE, NARROW):
        await page.set_viewport_size(size)
        assert await overflow(page) <= 0
        assert await cut_tables(page) == []
    assert await cut_labels(page) == []


async def test_every_page_can_be_read_without_a_script(
    browser: Browser, cluster: Cluster, client: oncelog.AsyncClient, visitor: Visitor
) -> None:
    """The same blocks, and what only a script can do is hidden."""
    await log_in(visitor, "root", "/console/")
    plain = await browser.new_context(
        base_url=cluster.admin_url, ignore_https_errors=True, java_script_enabled=False,
        storage_state=await visitor.context.storage_state(),
    )  # fmt: skip
    async with plain:
        page = await plain.new_page()
        for path in ADDRESSES.values():
            await visitor.page.goto(path)
            await page.goto(path)
            headings = visitor.page.locator("main h1, main h2")
            assert await headings.count() > 0, path
            await expect(page.locator("main h1, main h2")).to_have_text(await headings.all_inner_texts())
            await expect(page.locator(".needs-js").locator("visible=true")).to_have_count(0)


async def test_names_and_values_are_shown_as_text(visitor: Visitor, client: oncelog.AsyncClient) -> None:
    """A producer may have any name, also one that is HTML, and its messages any key and value."""
    page = await log_in(visitor, "root", topic_page(ORDERS))
    await expect(page.locator("main")).to_contain_text(MARKUP[:20])
    await expect(page.locator("main img, main script")).to_have_count(0)


async def test_figures_change_while_messages_are_published(visitor: Visitor, client: oncelog.AsyncClient) -> None:
    """Without loading the page again."""
    producer = await client.create_producer("public/shop/live", producer_name="importer")
    await producer.send(b"first")
    page = await log_in(visitor, "root", topic_page("public/shop/live"))
    await expect(page.locator("#live")).to_have_text("live")
    await page.evaluate("window.same = true")
    await producer.send_many([b"one"] * 4_320)
    await expect(page.locator("main")).to_contain_text(re.compile(r"4.321"))
    assert await page.evaluate("window.same")
    await producer.close()


async def test_keys_go_to_pages_and_rows_without_a_pointer(visitor: Visitor, client: oncelog.AsyncClient) -> None:
    """g and a letter to each page of the navigation, / to the filter of rows, arrows between them."""
    page = await log_in(visitor, "root", "/console/")
    for target in [each for each in PAGES if each.key is not None]:
        await page.keyboard.press("g")
        await page.keyboard.press(str(target.key))
        await expect(page).to_have_url(re.compile(f"{re.escape(target.path)}$"))
        await listens(page)
    await page.goto("/console/topics")
    await listens(page)
    rows = page.locator("table[data-rows] tbody tr:visible")
    await page.keyboard.press("/")
    await expect(page.locator(".filter")).to_be_focused()
    await page.keyboard.type("SHOP/orders")
    await expect(rows).to_have_count(2)  # with the dead letters
    await expect(page).to_have_url(re.compile(r"[?&]rows=SHOP%2Forders$"))
    await page.reload()
    await listens(page)
    await expect(rows).to_have_count(2)
    await page.locator(".filter").focus()
    await page.keyboard.press("Tab")
    await rows.first.get_by_role("link").first.focus()
    await page.keyboard.press("ArrowDown")
    await expect(rows.last.get_by_role("link").first).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(re.compile("orders-billing-DLQ$"))


async def test_login_leads_to_the_page_that_was_asked_for_and_logout_ends_it(
    visitor: Visitor, client: oncelog.AsyncClient
) -> None:
    """A token that is not one is refused with a reason."""
    page = visitor.page
    await page.goto(ASKED)
    assert await violations(page) == []
    await page.get_by_label("Token").fill("not-a-token")
    visitor.complaints.expected("401")
    await page.get_by_role("button", name="Log in").click()
    await expect(page.get_by_role("alert")).to_be_visible()
    await log_in(visitor, "reader", ASKED)
    await expect(page).to_have_url(re.compile(r"/console/\?shown=this$"))
    await page.get_by_role("button", name="Log out").click()
    await expect(page).to_have_url(re.compile("/console/login"))
    await page.goto(ASKED)
    await expect(page).to_have_url(re.compile("/console/login"))


async def test_id_is_copied_whole(visitor: Visitor, client: oncelog.AsyncClient) -> None:
    """It is shown without its middle."""
    page = await log_in(visitor, "root", "/console/")
    await visitor.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await page.evaluate("window.setTimeout = () => 0")  # which would take the text away after a second
    button = page.locator("button[data-copy]").locator("visible=true").first
    await button.click()
    await expect(button).to_have_text("copied")
    assert await page.evaluate("navigator.clipboard.readText()") == await button.get_attribute("data-copy")


async def test_open_page_leads_to_the_login_when_its_token_expires(
    visitor: Visitor, client: oncelog.AsyncClient
) -> None:
    """And says why there; after another login it is shown again."""
    visitor.complaints.expected("status of 401")
    page = await log_in(visitor, "root", ASKED, expires_s=8 - LEEWAY_S)
    await expect(page).to_have_url(re.compile("/console/login"))
    await expect(page.get_by_role("alert")).to_contain_text("expired")
    await page.get_by_label("Token").fill(token("root"))
    await page.get_by_role("button", name="Log in").click()
    await expect(page).to_have_url(re.compile(re.escape(ASKED)))
