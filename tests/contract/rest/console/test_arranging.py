"""Lists in an order that the address names: producers, ledgers, storage nodes and proofs."""

from dataclasses import replace
from pathlib import Path

import pytest

from oncelog.core.ids import TopicId
from oncelog.metadata.console.arranging import Order, arranged, by_field
from oncelog.metadata.console.pages import topic as topic_page
from tests.contract.owner.owner_world import PublishClient
from tests.contract.rest.admin.test_admin_storage import three_nodes
from tests.contract.rest.console.console_world import block_of, serving, text_of
from tests.contract.rest.console.served_console import served_console
from tests.contract.rest.console.test_proofs import Looking

TOPIC = "/console/topics/public/default/orders"


def places(text: str, *words: str) -> list[int]:
    return [text.index(word) for word in words]


def test_unknown_values_are_behind_all_others_and_an_unknown_order_changes_nothing() -> None:
    """Rows that are alike stay as they were."""
    rows: list[dict[str, int | None]] = [{"n": 1, "id": 1}, {"n": None, "id": 2}, {"n": 3, "id": 3}, {"n": 1, "id": 4}]
    orders = {**by_field("n"), "least": Order(lambda row: row["n"], ascending=True)}
    assert [row["id"] for row in arranged(rows, orders, "n")] == [3, 1, 4, 2]
    assert [row["id"] for row in arranged(rows, orders, "least")] == [1, 4, 3, 2]
    assert arranged(rows, orders, "colour") == arranged(rows, orders, None) == rows


def test_ledgers_without_an_order_are_the_newest_and_those_that_lack_copies() -> None:
    """With one, of all that were read."""
    ledgers: list[dict[str, object]] = [
        {"ledger_id": n, "health": "ok", "copies": 3, "entries": n, "bytes": 0} for n in range(100)
    ]
    ledgers[7] |= {"health": "lost", "copies": 0}
    shown = [each["ledger_id"] for each in topic_page._ledger_rows(ledgers, None)]
    assert shown == [7, 95, 96, 97, 98, 99]
    assert topic_page._ledger_rows(ledgers, "copies")[0]["ledger_id"] == 7
    assert len(topic_page._ledger_rows(ledgers, "entries")) == topic_page.LEDGER_ROWS


@pytest.mark.asyncio
async def test_producers_are_ordered_and_filtered_by_the_address(tmp_path: Path) -> None:
    """Each column that sorts is a link; the form keeps the order."""
    async with served_console(tmp_path) as console:
        runner = await console.world.serve("orders")
        client = PublishClient(console.channel)
        for name in ("b", "a", "a", "c", "a"):
            await client.open(runner, f"till-{name}")
        page = await console.page(f"{TOPIC}?producers_sort=name")
        text = text_of(block_of(page, "producers"))
        assert places(text, "till-a", "till-b", "till-c") == sorted(places(text, "till-a", "till-b", "till-c"))
        assert "Producer ▲" in text
        assert '<input type="hidden" name="producers_sort" value="name">' in page
        text = text_of(block_of(await console.page(f"{TOPIC}?producers_sort=generation"), "producers"))
        assert text.index("till-a") < text.index("till-b")
        text = text_of(block_of(await console.page(f"{TOPIC}?producers_connected=false"), "producers"))
        assert "till-" not in text


@pytest.mark.asyncio
async def test_nodes_are_ordered_by_the_address() -> None:
    """The same nodes as REST has."""
    async with serving() as console, three_nodes(console.admin):
        addresses = sorted(node["address"] for node in await console.admin.get("/admin/v2/storage/nodes"))
        text = text_of(block_of(await console.page("/console/storage?nodes_sort=address"), "nodes"))
        assert "Address ▲" in text
        assert places(text, *addresses) == sorted(places(text, *addresses))
        assert "Free ▼" in text_of(block_of(await console.page("/console/storage?nodes_sort=free_bytes"), "nodes"))


@pytest.mark.asyncio
async def test_proofs_are_ordered_by_the_address() -> None:
    """REST has them by topic id."""
    async with Looking.at() as looking:
        for number, name in enumerate(("b", "c", "a")):
            looking.asked = replace(looking.asked, topic_id=TopicId(f"{number:032x}"), topic=f"public/default/{name}")
            await looking.keep(looking.read().concluded(5_000 + number))
        for order, expected in ((None, "bca"), ("topic", "abc"), ("when", "acb")):
            path = "/console/proof" if order is None else f"/console/proof?sort={order}"
            text = text_of(block_of(await looking.browser.page(path), "proofs"))
            names = [f"public/default/{name}" for name in expected]
            assert places(text, *names) == sorted(places(text, *names)), order
