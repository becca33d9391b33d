"""Storage: which nodes there are, how many copies the entries have, what repair does, and whether a node may be
replaced. For superusers, as the calls behind it."""

from typing import Any

from oncelog.metadata.console.page import Page, View
from oncelog.metadata.console.rest_reading import Block, rest_path

_ROWS = 20
#: Counts of the progress of repair, and the filter of the list of ledgers; the worst first.
_UNSOUND = {
    "lost_ledgers": "lost",
    "unavailable_ledgers": "unavailable",
    "frozen_ledgers": "frozen",
    "under_replicated_ledgers": "under-replicated",
}


async def collect(view: View) -> dict[str, Any]:
    """may_replace: only if the query names a node, because it asks every storage node. ledgers: by what is wrong."""
    node = view.query.get("node")
    repair, nodes = await view.read_all("/admin/v2/storage/repair", "/admin/v2/storage/nodes")
    wrong = [state for name, state in _UNSOUND.items() if repair.known and repair.value[name]]
    targets = [rest_path("/admin/v2/storage/ledgers", state=state, limit=_ROWS) for state in wrong]
    ledgers = await view.read_all(*targets)
    may_replace: Block | None = None
    if node:
        may_replace = await view.read(rest_path("/admin/v2/storage/nodes/{}/may-replace", node))
    return {
        "repair": repair,
        "nodes": nodes,
        "ledgers": dict(zip(wrong, ledgers, strict=True)),
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
