"""Actions on one subscription of a topic. What is done to a partitioned topic is done to all its partitions."""

import re
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from operator import ne
from typing import Any

from oncelog.core.access import Right
from oncelog.core.errors import InvalidArgument
from oncelog.metadata.console.action import Action, Change, Figures
from oncelog.metadata.console.actions.topics import rest_topic
from oncelog.metadata.console.page import View
from oncelog.metadata.console.rendering import topic_link
from oncelog.metadata.console.rest_reading import Block, Problem, rest_path

PATH = "/console/topics/{tenant}/{namespace}/{topic}/subscriptions/{subscription}"
_MESSAGE_ID = re.compile(r"[0-9]{1,19}(:[0-9]{1,19}){1,2}", re.ASCII)
RIGHTS = (Right.ADMIN, Right.CONSUME)


def rest_subscription(view: View, more: str = "", *parts: str, **query: object) -> str:
    """A path of REST below the subscription of a page."""
    return rest_topic(view, "/subscription/{}" + more, view.parts["subscription"], *parts, **query)


def whole_topic(view: View) -> str:
    """The topic of a page, without the number of a partition: its partitions share their dead letters."""
    name, mark, number = view.parts["topic"].rpartition("-partition-")
    return name if mark and number.isdecimal() else view.parts["topic"]


def rest_redrive(view: View, **query: object) -> str:
    place = view.parts["tenant"], view.parts["namespace"], whole_topic(view), view.parts["subscription"]
    return rest_path("/admin/v2/persistent/{}/{}/{}/subscription/{}/redrive", *place, **query)


async def _backlog(view: View) -> dict[str, Any]:
    shown = await view.read_fresh(rest_subscription(view))
    shown.require_place()
    return {"shown": shown}


async def _seek(view: View) -> dict[str, Any]:
    place = await view.read_fresh(rest_subscription(view, "/place", **_place(view)))
    place.require_place()
    return {"place": place}


async def _letters(view: View) -> dict[str, Any]:
    named = view.query.get("dead_letter_topic")
    return {"letters": await view.read_fresh(rest_redrive(view, dead_letter_topic=named))}


def _position(context: Mapping[str, Any]) -> Figures | Problem:
    """The first index that is not acknowledged, the number of seeks, and the backlog; of all partitions, the sums."""
    shown: Block = context["shown"]
    if shown.problem is not None:
        return shown.problem
    rows = shown.value.values()
    return [sum(row[name] for row in rows) for name in ("mark_delete", "seek_epoch", "msg_backlog")]


def _skipped(then: Figures, now: Figures) -> bool:
    """A skip moves the first index, a seek perhaps not."""
    return then[:2] != now[:2]


def _cleared(then: Figures, now: Figures) -> bool:
    """Consumers may go on. When nothing is left of what the form showed, only what came since would be cleared."""
    empty = then[2] == now[2] == 0
    return then[1] != now[1] or (now[0] >= then[0] + then[2] and not empty)


def _place(view: View) -> dict[str, Any]:
    """The place of a seek, as REST takes it. Raises InvalidArgument."""
    by, at = view.query.get("by", ""), view.query.get("at", "").strip()
    match by:
        case "earliest" | "latest":
            return {"position": by}
        case "index":
            return {"index": _count(at, "at")}
        case "message_id":
            if not _MESSAGE_ID.fullmatch(at):
                message = "at: must be a message id as 7:0, ledger:entry, or as 7:0:3, with the index in the entry"
                raise InvalidArgument(message, field="at")
            return {"message_id": at, "inclusive": True}
        case "time":
            try:
                found = datetime.fromisoformat(at)
                found = found if found.tzinfo else found.replace(tzinfo=UTC)
                return {"time_ms": int(found.timestamp() * 1000)}
            except (ValueError, OverflowError) as error:
                raise InvalidArgument("at: must be a time as 2026-01-31T12:00:00, in UTC", field="at") from error
    raise InvalidArgument("by: must be earliest, latest, index, time or message_id", field="by")


def _count(text: str, field: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > 18:
        raise InvalidArgument(f"{field}: must be a whole number, 0 or more", field=field)
    return int(text)


def _redrive(view: View) -> Change:
    named = view.query.get("dead_letter_topic")
    return Change("POST", rest_redrive(view), {"dead_letter_topic": named} if named else None)


def _skip(view: View) -> Change:
    return Change("POST", rest_subscription(view, "/skip/{}", str(_count(view.query.get("count", ""), "count"))))


def _action(
    name: str,
    title: str,
    done: str,
    change: Callable[[View], Change],
    *,
    collect: Callable[[View], Awaitable[dict[str, Any]]] = _backlog,
    rights: tuple[Right, ...] = RIGHTS,
    moved: Callable[[Figures, Figures], bool] | None = None,
) -> Action:
    return Action(
        path=f"{PATH}/{name}",
        name=name,
        title=title,
        done=done,
        rights=rights,
        template="subscription_loss.html",
        collect=collect,
        typed=lambda view: view.parts["subscription"],
        change=change,
        back=lambda view: topic_link(
            view.topic, *(() if name == "delete-subscription" else ("subscriptions", view.parts["subscription"]))
        ),
        seen=None if moved is None else _position,
        moved=moved or ne,
    )


ACTIONS = (
    _action(
        "seek", "Begin again at a place", "The subscription goes on at the place.",
        lambda view: Change("POST", rest_subscription(view, "/resetcursor"), _place(view)), collect=_seek,
    ),
    _action("skip", "Skip messages", "The messages were skipped.", _skip, moved=_skipped),
    _action(
        "clear", "Clear the backlog", "The backlog was cleared.",
        lambda view: Change("POST", rest_subscription(view, "/skip_all")), moved=_cleared,
    ),
    _action(
        "delete-subscription", "Delete the subscription", "The subscription was deleted.",
        lambda view: Change(
            "DELETE", rest_subscription(view, force=True if view.query.get("force") == "true" else None)
        ),
    ),
    _action(
        "redrive", "Redrive dead letters",
        "Letters that are published are in their topic once. If some are left, do it again; those that are kept say "
        "why.",
        _redrive, collect=_letters, rights=(Right.PRODUCE,),
    ),
)  # fmt: skip
