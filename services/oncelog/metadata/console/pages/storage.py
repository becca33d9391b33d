"""Storage: which nodes there are, how many copies the entries have, what repair does, and whether a node may be
replaced. For superusers, as the calls behind it."""

from typing import Any

from oncelog.metadata.console.arranging import READ_MAX, Order, Orders, arranged, by_field
from oncelog.metadata.console.page import Page, View
from oncelog.metadata.console.rest_reading import Block, rest_path

_ROWS = 20
#: A look at the cluster takes a fifth of a second at 2,000 topics, and the elected replica looks every two seconds.
_SEEN_WITHIN_S = 3
#: Counts of the progress of repair, and the filter of the list of ledgers; the worst first.
_UNSOUND = {
    "lost_ledgers": "lost",
    "unavailable_ledgers": "unavailable",
    "frozen_ledgers": "frozen",
    "under_replicated_ledgers": "under-replicated",
}

_NODES: Orders = {
    "address": Order(lambda row: row["address"], ascending=True),
    "state": Order(lambda row: row["state"], ascending=True),
    **by_field("stored_bytes", "dead_bytes", "free_bytes", "ledgers", "damaged_ledgers", "debt"),
}
_LEDGERS: Orders = {
    "topic": Order(lambda row: row["topic"], ascending=True),
    "copies": Order(lambda row: row["copies"], ascending=True),
    **by_field("ledger_id", "entries"),
}


def unsound_ledgers(state: str, limit: int) -> str:
    """The call for the ledgers in this state. The lists of a page share one look at the cluster."""
    return rest_path("/admin/v2/storage/ledgers", state=state, limit=limit, seen_within_s=_SEEN_WITHIN_S)


async def collect(view: View) -> dict[str, Any]:
    """may_replace: only if the query names a node, because it asks every storage node. ledgers: by what is wrong."""
    node, sort, ledgers_sort = view.query.get("node"), view.query.get("nodes_sort"), view.query.get("ledgers_sort")
    repair, nodes = await view.read_all(
        "/admin/v2/storage/repair", rest_path("/admin/v2/storage/nodes", seen_within_s=_SEEN_WITHIN_S)
    )
    limit = READ_MAX if ledgers_sort in _LEDGERS else _ROWS
    wrong = [state for name, state in _UNSOUND.items() if repair.known and repair.value[name]]
    targets = [unsound_ledgers(state, limit) for state in wrong]
    ledgers = await view.read_all(*targets)
    may_replace: Block | None = None
    if node:
        may_replace = await view.read(rest_path("/admin/v2/storage/nodes/{}/may-replace", node))
    return {
        "repair": repair,
        "nodes": nodes,
        "node_rows": arranged(nodes.value, _NODES, sort) if nodes.known else [],
        "nodes_sort": sort,
        "ledgers_sort": ledgers_sort,
        "ledgers": [
            (state, read, arranged(read.value["ledgers"], _LEDGERS, ledgers_sort)[:_ROWS] if read.known else [])
            for state, read in zip(wrong, ledgers, strict=True)
        ],
        "may_replace": may_replace,
        "copies": _copies(repair.value) if repair.known else [],
    }


def _copies(repair: dict[str, Any]) -> list[dict[str, Any]]:
    """For each number of copies that entries have or had within the hour, the most first: how many have so many now,
    and over time."""
    history = repair.get("history", [])
    now = repair.get("entries_by_copies", {})
    numbers = sorted({int(n) for one in (*(each["entries_by_copies"] for each in history), now) for n in one})
    return [
        {
            "copies": number,
            "entries": now.get(str(number), 0),
            "over_time": [each["entries_by_copies"].get(str(number), 0) for each in history],
        }
        for number in reversed(numbers)
    ]


PAGE = Page("/console/storage", "Storage", "storage.html", collect, interval_s=5.0, key="s")
