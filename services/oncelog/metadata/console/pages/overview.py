"""The overview: one sentence about what is safe and what is stuck, and below it what the sentence is made of."""

from typing import Any

from oncelog.metadata.console.page import Page, View
from oncelog.metadata.console.rest_reading import rest_path


async def collect(view: View) -> dict[str, Any]:
    names = ("health", "owners", "nodes", "waiting", "held", "blocked")
    reads = await view.read_all(
        "/admin/v2/brokers/health",
        "/admin/v2/brokers",
        rest_path("/admin/v2/storage-nodes"),
        *(rest_path("/admin/v2/topics", state=state, limit=5) for state in ("waiting", "held", "blocked")),
    )
    return dict(zip(names, reads, strict=True))


PAGE = Page("/console/", "Overview", "overview.html", collect, key="o")
