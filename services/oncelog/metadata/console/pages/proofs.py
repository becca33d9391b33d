"""The proofs: the list of all, and those of one topic with what each part has read and found."""

from typing import Any

from oncelog.metadata.console.page import Page, View
from oncelog.metadata.console.rest_reading import rest_path

LIMIT = 100


async def collect_all(view: View) -> dict[str, Any]:
    if not view.caller.superuser:
        return {"proofs": None}
    return {"proofs": await view.read(rest_path("/admin/v2/proofs", limit=LIMIT, after=view.query.get("after")))}


async def collect_one(view: View) -> dict[str, Any]:
    parts = (view.parts[name] for name in ("tenant", "namespace", "topic"))
    proof = await view.read(rest_path("/admin/v2/persistent/{}/{}/{}/proof", *parts))
    proof.require_place()
    return {"proof": proof}


PAGE = Page("/console/proof", "Proofs", "proofs.html", collect_all, interval_s=5.0, key="p")
TOPIC_PAGE = Page(
    "/console/topics/{tenant}/{namespace}/{topic}/proof", "Proof of a topic", "topic_proof.html", collect_one
)
