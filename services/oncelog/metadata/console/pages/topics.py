"""The topics: of the cluster for superusers, of one namespace for everybody who has a right in it."""

from collections.abc import Mapping, Sequence
from typing import Any

from oncelog.core.errors import InvalidArgument
from oncelog.metadata.console.page import Page, View
from oncelog.metadata.console.rest_reading import rest_path

LIMIT = 100
_FILTERS = ("state", "after")


async def collect(view: View) -> dict[str, Any]:
    """Raises InvalidArgument."""
    namespace = view.query.get("namespace", "")
    parts = namespace.split("/")
    if namespace and (len(parts) != 2 or not all(parts)):
        raise InvalidArgument(f"namespace must be tenant/namespace, not {namespace[:100]}", field="namespace")
    context: dict[str, Any] = {"namespace": namespace, "topics": None, "names": None, "unowned": []}
    given = {name: view.query.get(name) for name in _FILTERS}
    if namespace:
        page, names = await view.read_all(
            rest_path("/admin/v2/topics/{}/{}", *parts, limit=LIMIT, **given),
            rest_path("/admin/v2/persistent/{}/{}", *parts),
        )
        context |= {"topics": page, "names": names}
        if page.known and names.known and not any(given.values()):
            context["unowned"] = _unowned(page.value, names.value)
    elif view.caller.superuser:
        context["topics"] = await view.read(rest_path("/admin/v2/topics", limit=LIMIT, **given))
    return context


def _unowned(page: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    """The first topics of the namespace that no owner serves; none if that cannot be told from one page."""
    if page["next_after"] is not None or page["silent_owners"]:
        return []
    owned = {row["topic"] for row in page["topics"]}
    return [name for name in names if name not in owned][:LIMIT]


PAGE = Page("/console/topics", "Topics", "topics.html", collect, key="t")
