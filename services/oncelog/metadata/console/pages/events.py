"""What happened lately: in the cluster for superusers, in one namespace for its admins. The query has the filters."""

import json
import re
from collections.abc import Mapping
from typing import Any

from oncelog.metadata.console.page import Page, View, namespace_of
from oncelog.metadata.console.rest_reading import rest_path
from oncelog.metadata.console.shown import short
from oncelog.runtime.observing.events import EventKind

LIMIT = 100
#: Fields that say what happened, the most telling first; the others are shown on demand.
_TELLING = (
    "reason", "because", "by", "method", "path", "role", "producer", "subscription", "generation", "former_generation",
    "ledger_id", "replaced", "ms", "replayed_entries", "owner_epoch",
)  # fmt: skip
_SHOWN_MAX = 3
_ID = re.compile(r"\b[0-9a-f]{32}\b", re.ASCII)


async def collect(view: View) -> dict[str, Any]:
    """Raises InvalidArgument."""
    query = view.query
    namespace, topic = namespace_of(view), query.get("topic", "").strip()
    parts = namespace.split("/")
    given = {name: query.get(name) for name in ("kind", "node", "before")} | {"limit": LIMIT}
    if topic.count("/") == 2 and not view.caller.superuser:
        tenant, name, topic = topic.split("/")
        parts = [tenant, name]
    target: str | None = None
    if view.caller.superuser and not namespace:
        target = rest_path("/admin/v2/events", topic=topic, **given)
    elif all(parts):
        target = rest_path("/admin/v2/events/{}/{}", *parts, topic=topic.removeprefix(f"{namespace}/"), **given)
    events = None if target is None else await view.read(target)
    facts = [told_apart(row["fields"]) for row in events.value["events"]] if events is not None and events.known else []
    return {"events": events, "facts": facts, "kinds": list(EventKind), "namespace": namespace}


def told_apart(fields: Mapping[str, Any]) -> tuple[str, str]:
    """The facts that matter most, and all others."""
    given = {name: value for name, value in fields.items() if value not in (None, "")}
    order = [*(name for name in _TELLING if name in given), *(name for name in given if name not in _TELLING)]
    shown = order[:_SHOWN_MAX]
    return _facts({name: given[name] for name in shown}), _facts({name: given[name] for name in order[_SHOWN_MAX:]})


def _facts(fields: Mapping[str, Any]) -> str:
    """What the message leaves open, as one text; ids are shortened."""
    text = ", ".join(f"{name} {_text(value)}" for name, value in fields.items() if value not in (None, ""))
    return _ID.sub(lambda match: short(match[0]), text)


def _text(value: object) -> str:
    if isinstance(value, Mapping):
        return f"({_facts(value)})"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


PAGE = Page("/console/events", "Events", "events.html", collect, interval_s=2.0, key="e")
