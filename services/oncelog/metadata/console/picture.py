"""The picture of the cluster: clients, topic owners and storage nodes in three rows, and what flows between them.

Each box of a row has the same width, so the lines between two rows are known from the numbers of their boxes. A row
with more than `BOXES_MAX` shows the first ones, and one box for the others.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from oncelog.metadata.console.shown import binary, counted, number

BOXES_MAX = 6
#: Of the drawing between two rows, which is stretched to the width of the page.
WIDTH, HEIGHT = 1_000, 40
_THIN, _THICK = 1.0, 6.0


class Box(NamedTuple):
    """title: the first line. state: its word and kind, as `state` of the templates; none: it has none. lines: further
    facts. rate: what flows through it, of any unit; none: not known."""

    title: str
    state: tuple[str, str] | None
    lines: tuple[str, ...]
    rate: float | None = None


class Edge(NamedTuple):
    """A line between two boxes. width: in pixels. known: whether anything flows is known."""

    x1: float
    x2: float
    width: float
    known: bool


class Tier(NamedTuple):
    """A row, and the lines to the row above. about: what flows on them, in words; empty: nothing is above."""

    title: str
    boxes: list[Box]
    edges: list[Edge]
    about: str = ""


def shown_boxes(boxes: Sequence[Box], what: str) -> list[Box]:
    """At most BOXES_MAX. what: the others are called."""
    if len(boxes) <= BOXES_MAX:
        return list(boxes)
    rest = boxes[BOXES_MAX - 1 :]
    words = sorted({each.state[0] for each in rest if each.state is not None})
    rates = [each.rate for each in rest if each.rate is not None]
    others = Box(f"{len(rest)} more {what}", None, (", ".join(words),), sum(rates) if rates else None)
    return [*boxes[: BOXES_MAX - 1], others]


def edges(above: Sequence[Box], below: Sequence[Box], *, by_below: bool) -> list[Edge]:
    """From each box to each. by_below: the boxes below have the rates, otherwise those above; the thickest line has the
    highest."""
    rates = [each.rate for each in (below if by_below else above)]
    most = max((rate for rate in rates if rate is not None), default=0.0)
    found = []
    for first, upper in enumerate(above):
        for second, lower in enumerate(below):
            rate = (lower if by_below else upper).rate
            share = rate / most if rate and most else 0.0
            width = round(_THIN + share * (_THICK - _THIN), 1)
            places = ((first + 0.5) / len(above) * WIDTH, (second + 0.5) / len(below) * WIDTH)
            found.append(Edge(round(places[0], 1), round(places[1], 1), width, rate is not None))
    return found


def picture(
    owners: Sequence[Mapping[str, Any]],
    rates: Mapping[str, Any],
    nodes: Sequence[Mapping[str, Any]],
) -> list[Tier]:
    """owners, rates, nodes: answers of /admin/v2/brokers, /admin/v2/rates and /admin/v2/storage-nodes."""
    answered = {each["incarnation"]: each for each in rates["owners"]}
    owner_boxes = [_owner(each, answered.get(each["incarnation"])) for each in owners]
    node_boxes = [_node(each) for each in nodes if not each["retired"]]
    newest = [each["samples"][-1] for each in rates["owners"] if each["samples"]]
    stored, received = (_sum(newest, name) for name in ("stored", "received_bytes"))
    delivered = _sum(newest, "delivered")
    silent = len(owner_boxes) > len(answered)
    clients = [
        Box("Producers", None, (number(_total(rates, "producers", silent)) + " connected",), stored),
        Box("Consumers", None, (number(_total(rates, "consumers", silent)) + " connected",), delivered),
    ]
    upper, lower = shown_boxes(owner_boxes, "owners"), shown_boxes(node_boxes, "nodes")
    at_least = "at least " if silent and newest else ""
    flow = f"{at_least}{number(stored)}/s stored, {binary(received)}/s, {number(delivered)}/s delivered"
    return [
        Tier("Clients", clients, []),
        Tier("Topic owners", upper, edges(clients, upper, by_below=True), flow),
        Tier("Storage nodes", lower, edges(upper, lower, by_below=False), "each entry to the members of its ledger"),
    ]


def _owner(owner: Mapping[str, Any], answer: Mapping[str, Any] | None) -> Box:
    if answer is None:
        return Box(owner["address"], ("does not answer", "unknown"), (), None)
    sample = answer["samples"][-1] if answer["samples"] else None
    rate = None if sample is None else _rate(sample, "stored")
    topics = answer["topics"]
    served = "– topics" if topics is None else counted(topics, "topic")
    lines = (served, f"{number(rate)}/s stored")
    live = owner["state"] == "live" and owner["connected"]
    state = ("live", "good") if live else (owner["state"] if owner["state"] != "live" else "no stream", "warn")
    return Box(owner["address"], state, lines, rate)


def _node(node: Mapping[str, Any]) -> Box:
    state = ("away", "bad") if not node["live"] else ("read-only", "warn") if node["read_only"] else ("live", "good")
    return Box(node["address"], state, (f"{binary(node['free_bytes'])} free",) if node["live"] else ())


def _rate(sample: Mapping[str, Any], name: str) -> float:
    return float(sample[name] * 1_000 / max(1, sample["interval_ms"]))


def _sum(samples: Sequence[Mapping[str, Any]], name: str) -> float | None:
    return sum(_rate(each, name) for each in samples) if samples else None


def _total(rates: Mapping[str, Any], name: str, silent: bool) -> int | None:
    """None: an owner does not say it."""
    counts = [each[name] for each in rates["owners"]]
    return None if silent or None in counts else sum(counts)
