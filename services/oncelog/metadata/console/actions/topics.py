"""Actions on one topic."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from oncelog.core.access import Right
from oncelog.metadata.console.action import Action, Change, Figures
from oncelog.metadata.console.page import View
from oncelog.metadata.console.rendering import topic_link
from oncelog.metadata.console.rest_reading import Block, Problem, rest_path

_TOPIC = "/console/topics/{tenant}/{namespace}/{topic}"


def rest_topic(view: View, more: str = "", *parts: str, **query: object) -> str:
    """A path of REST below the topic of a page."""
    place = (view.parts[name] for name in ("tenant", "namespace", "topic"))
    return rest_path("/admin/v2/persistent/{}/{}/{}" + more, *place, *parts, **query)


async def content(view: View) -> dict[str, Any]:
    """`record` and `stats`, of the topic or of each of its partitions: what they hold. A partition that was never used
    is left out."""
    record = await view.read_fresh(rest_topic(view))
    record.require_place()
    count = record.value["partitions"] if record.known else 0
    paths = [rest_topic(view, "/stats")]
    if count:
        place = view.parts["tenant"], view.parts["namespace"]
        names = (f"{view.parts['topic']}-partition-{number}" for number in range(count))
        paths = [rest_path("/admin/v2/persistent/{}/{}/{}/stats", *place, name) for name in names]
    stats = await asyncio.gather(*(view.read_fresh(path) for path in paths))
    return {"record": record, "stats": [each for each in stats if not (count and _missing(each))]}


def _identity(context: Mapping[str, Any]) -> Figures | Problem:
    """A topic that is created again has another id."""
    record: Block = context["record"]
    return [record.value["topic_id"]] if record.problem is None else record.problem


def _extent(context: Mapping[str, Any]) -> Figures | Problem:
    """Where the messages begin, and of how many partitions any are kept; a topic without an owner shows neither."""
    record: Block = context["record"]
    stats: list[Block] = context["stats"]
    problem = next((each.problem for each in [record, *stats] if each.problem is not None), None)
    if problem is not None:
        return problem
    known = [each.value for each in stats if each.value.get("message_count") is not None]
    return [
        sum(each.get("first_index", 0) for each in known),
        sum(each["message_count"] > each.get("first_index", 0) for each in known),
    ]


def _missing(stats: Block) -> bool:
    return stats.problem is not None and stats.problem.code == "topic_not_found"


def _action(
    name: str,
    method: str,
    more: str,
    title: str,
    done: str,
    *,
    list_after: bool = False,
    seen: Callable[[Mapping[str, Any]], Figures | Problem] | None = None,
) -> Action:
    """list_after: the topic has no page any more. seen: see `Action`."""
    return Action(
        path=f"{_TOPIC}/{name}",
        name=name,
        title=title,
        done=done,
        rights=(Right.ADMIN,),
        template="topic_loss.html",
        collect=content,
        typed=lambda view: view.topic,
        change=lambda view: Change(method, rest_topic(view, more)),
        back=lambda view: "/console/topics" if list_after else topic_link(view.topic),
        seen=seen,
    )


ACTIONS = (
    _action("unload", "PUT", "/unload", "Unload the topic", "The topic was unloaded: another owner takes it over."),
    _action("snapshot", "POST", "/deduplication/snapshot", "Write a snapshot now", "The snapshot is durable."),
    _action(
        "truncate", "DELETE", "/truncate", "Delete all messages", "All messages of the topic were deleted.",
        seen=_extent,
    ),
    _action("delete", "DELETE", "", "Delete the topic", "The topic was deleted.", list_after=True, seen=_identity),
    _action(
        "delete-partitions", "DELETE", "/partitions", "Delete the topic with all partitions",
        "The topic was deleted with all its partitions.", list_after=True, seen=_identity,
    ),
)  # fmt: skip
