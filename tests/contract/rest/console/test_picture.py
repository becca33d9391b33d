"""The picture of the cluster: its rows, and the lines between them."""

from typing import Any

import pytest

from oncelog.metadata.console.picture import BOXES_MAX, Box, edges, picture, shown_boxes
from oncelog.wire.observation_pb2 import RatesSample
from tests.contract.rest.console.console_world import block_of, serving, text_of
from tests.contract.rest.console.test_overview import storage_nodes


def owner(name: str, **changed: Any) -> dict[str, Any]:
    return {"incarnation": name, "address": f"{name}:1", "state": "live", "connected": True, **changed}


def answer(name: str, stored: int) -> dict[str, Any]:
    sample = {"interval_ms": 10_000, "stored": stored, "received_bytes": 10_240, "delivered": 2 * stored}
    return {"incarnation": name, "producers": 3, "consumers": 2, "topics": 7, "samples": [sample]}


def node(name: str, **changed: Any) -> dict[str, Any]:
    shown = {"address": f"{name}:2", "live": True, "retired": False, "read_only": False, "free_bytes": 1 << 30}
    return {**shown, **changed}


def test_rows_have_states_and_rates_and_thick_lines_where_much_flows() -> None:
    """A retired node is not in the cluster any more."""
    nodes = [node("x"), node("y", live=False), node("z", read_only=True), node("old", retired=True)]
    rates = {"owners": [answer("a", 100), answer("b", 20)]}
    clients, owners, stores = picture([owner("a"), owner("b", connected=False)], rates, nodes)
    assert [(box.title, box.lines) for box in clients.boxes] == [
        ("Producers", ("6 connected",)), ("Consumers", ("4 connected",)),
    ]  # fmt: skip
    assert [(box.title, box.state, box.lines) for box in owners.boxes] == [
        ("a:1", ("live", "good"), ("7 topics", "10/s stored")),
        ("b:1", ("no stream", "warn"), ("7 topics", "2/s stored")),
    ]
    assert owners.about == "12/s stored, 2.0\u202fKiB/s, 24/s delivered"
    assert [edge.width for edge in owners.edges] == [6.0, 2.0, 6.0, 2.0]
    assert [(edge.x1, edge.x2) for edge in stores.edges[:3]] == [(250.0, 166.7), (250.0, 500.0), (250.0, 833.3)]
    assert [box.state for box in stores.boxes] == [("live", "good"), ("away", "bad"), ("read-only", "warn")]


def test_owner_that_does_not_answer_makes_sums_a_lower_bound() -> None:
    """And its lines are dotted; how many clients there are is not known."""
    clients, owners, stores = picture([owner("a"), owner("b")], {"owners": [answer("a", 100)]}, [])
    assert clients.boxes[0].lines == ("– connected",)
    assert owners.boxes[1].state == ("does not answer", "unknown")
    assert owners.about.startswith("at least 10/s stored")
    assert [edge.known for edge in owners.edges] == [True, False, True, False]
    assert (stores.boxes, stores.edges) == ([], [])


def test_row_with_many_boxes_shows_the_first_and_the_sum_of_the_others() -> None:
    boxes = [Box(f"{each}", ("live" if each % 2 else "away", "good"), (), float(each)) for each in range(20)]
    shown = shown_boxes(boxes, "owners")
    assert len(shown) == BOXES_MAX
    assert shown[-1] == Box("15 more owners", None, ("away, live",), float(sum(range(5, 20))))
    assert shown_boxes(boxes[:BOXES_MAX], "owners") == boxes[:BOXES_MAX]
    assert edges([], boxes, by_below=True) == []


@pytest.mark.asyncio
async def test_overview_shows_the_picture() -> None:
    """With what owners say of their clients."""
    async with serving() as console:
        fake = await console.admin.owner()
        await storage_nodes(console)
        fake.sampled = [RatesSample(at_ms=1, interval_ms=10_000, stored=40, delivered=20, received_bytes=1_024)]
        page = block_of(await console.page("/console/"), "picture")
        text = text_of(page)
        assert "Producers 3 connected Consumers 2 connected" in text
        assert f"{fake.address} ● live 1 topic 4/s stored" in text
        assert 'aria-label="4/s stored, 102\u202fB/s, 2/s delivered"' in page
        assert text.count("● live") == 4
