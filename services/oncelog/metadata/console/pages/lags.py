"""The lag of every subscription: of the cluster for superusers, of one namespace for its admins and consumers. Filters,
order and place are in the address."""

from typing import Any

from oncelog.core.topic.lag_listing import LagSort, LagState
from oncelog.metadata.console.page import Page, View, namespace_of
from oncelog.metadata.console.rest_reading import Block, rest_path

LIMIT = 100
#: {value of the filter: what it means}
STATES = {
    LagState.BACKLOG: "with a backlog",
    LagState.NO_CONSUMER: "with a backlog and no consumer",
    LagState.BLOCKED: "blocked",
}


async def collect(view: View) -> dict[str, Any]:
    """Raises InvalidArgument."""
    query, namespace = view.query, namespace_of(view)
    sort = query.get("sort") or LagSort.BACKLOG.value
    asked = {name: query.get(name, "") for name in ("state", "topic", "subscription", "after")}
    lags: Block | None = None
    if namespace:
        lags = await view.read(
            rest_path("/admin/v2/subscriptions/{}/{}", *namespace.split("/"), limit=LIMIT, sort=sort, **asked)
        )
    elif view.caller.superuser:
        lags = await view.read(rest_path("/admin/v2/subscriptions", limit=LIMIT, sort=sort, **asked))
    return {"lags": lags, "namespace": namespace, "sort": sort, "choices": STATES}


PAGE = Page("/console/lags", "Lags", "lags.html", collect, interval_s=2.0, key="l")
