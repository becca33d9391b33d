"""Actions on one topic."""

from typing import Any

from oncelog.core.access import Right
from oncelog.metadata.console.action import Action, Change
from oncelog.metadata.console.page import View
from oncelog.metadata.console.rendering import topic_link
from oncelog.metadata.console.rest_reading import rest_path

_TOPIC = "/console/topics/{tenant}/{namespace}/{topic}"


def _rest(view: View, more: str = "") -> str:
    parts = (view.parts[name] for name in ("tenant", "namespace", "topic"))
    return rest_path("/admin/v2/persistent/{}/{}/{}" + more, *parts)


async def _stats(view: View) -> dict[str, Any]:
    return {"stats": await view.read_fresh(_rest(view, "/stats"))}


UNLOAD = Action(
    path=_TOPIC + "/unload",
    name="unload",
    title="Unload the topic",
    done="The topic was unloaded: another owner takes it over.",
    right=Right.ADMIN,
    template="unload.html",
    collect=_stats,
    typed=lambda view: view.topic,
    change=lambda view: Change("PUT", _rest(view, "/unload")),
    back=lambda view: topic_link(view.topic),
)
