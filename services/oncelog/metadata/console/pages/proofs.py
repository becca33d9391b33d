"""The proofs: the list of all, and those of one topic with what each part has read and found."""

from typing import Any

from oncelog.metadata.console.arranging import READ_MAX, Order, Orders, arranged
from oncelog.metadata.console.page import Page, View
from oncelog.metadata.console.rest_reading import rest_path

LIMIT = 100


def _of_verdict(name: str) -> Order:
    return Order(lambda row: (row["verdict"] or {}).get(name))


_ORDERS: Orders = {
    "topic": Order(lambda row: row["topic"], ascending=True),
    "when": _of_verdict("ended_ms"),
    "findings": _of_verdict("findings_count"),
    "not_checked": _of_verdict("not_checked_count"),
}


async def collect_all(view: View) -> dict[str, Any]:
    if not view.caller.superuser:
        return {"proofs": None, "rows": [], "sort": None}
    sort = view.query.get("sort")
    limit = READ_MAX if sort in _ORDERS else LIMIT
    proofs = await view.read(rest_path("/admin/v2/proofs", limit=limit, after=view.query.get("after")))
    rows = arranged(proofs.value["proofs"], _ORDERS, sort) if proofs.known else []
    return {"proofs": proofs, "rows": rows[:LIMIT], "sort": sort}


async def collect_one(view: View) -> dict[str, Any]:
    parts = (view.parts[name] for name in ("tenant", "namespace", "topic"))
    proof = await view.read(rest_path("/admin/v2/persistent/{}/{}/{}/proof", *parts))
    proof.require_place()
    return {"proof": proof}


PAGE = Page("/console/proof", "Proofs", "proofs.html", collect_all, interval_s=5.0, key="p")
TOPIC_PAGE = Page(
    "/console/topics/{tenant}/{namespace}/{topic}/proof", "Proof of a topic", "topic_proof.html", collect_one
)
