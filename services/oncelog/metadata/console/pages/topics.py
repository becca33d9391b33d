"""The topics: of the cluster for superusers, of one namespace for everybody who has a right in it."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from oncelog.metadata.console.page import Page, View, namespace_of
from oncelog.metadata.console.rest_reading import rest_path

LIMIT = 100
_PARTITION = re.compile(r"-partition-[0-9]+", re.ASCII)
_FILTERS = ("name", "state", "sort", "after")


async def collect(view: View) -> dict[str, Any]:
    """Raises InvalidArgument."""
    namespace = namespace_of(view)
    parts = namespace.split("/")
    given = {name: view.query.get(name, "") for name in _FILTERS}
    # A state has an order of its own, the worst first. Partitions can be folded only in the order of names.
    given["sort"] = given["sort"] or ("" if given["state"] else "name")
    partitions = view.query.get("partitions", "folded") if given["sort"] == "name" else ""
    asked = {"limit": LIMIT, "partitions": partitions, **given}
    context: dict[str, Any] = {"namespace": namespace, "sort": given["sort"], "topics": None, "unowned": []}
    if namespace:
        page, names = await view.read_all(
            rest_path("/admin/v2/topics/{}/{}", *parts, **asked), rest_path("/admin/v2/persistent/{}/{}", *parts)
        )
        context |= {"topics": page, "names": names}
        if page.known and names.known and not any(view.query.get(name) for name in (*_FILTERS, "partitions")):
            context["unowned"] = _unowned(page.value, names.value)
    elif view.caller.superuser:
        context["topics"] = await view.read(rest_path("/admin/v2/topics", **asked))
    return context


def _unowned(page: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    """The first topics of the namespace that no owner serves; none if that cannot be told from one page."""
    if page["next_after"] is not None or page["silent_owners"]:
        return []
    owned = {row["topic"] for row in page["topics"]}
    folded = {row["topic"] for row in page["topics"] if row["partitions"]}
    return [name for name in names if name not in owned and _PARTITION.sub("", name) not in folded][:LIMIT]


PAGE = Page("/console/topics", "Topics", "topics.html", collect, key="t")
