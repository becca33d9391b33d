"""Routes for single messages and their ids. Nothing is delivered or acknowledged.

The cluster's REST counts messages, and says where one is; the log is asked for the entry there, so that a message is
shown as clients get it. Both ask for the right to read.
"""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from oncelog.core.access import Caller
from oncelog.core.ids import EntryId, LedgerId, Position
from oncelog.core.names import TopicName
from oncelog_doors.core.pulsar.deliveries import Delivery
from oncelog_doors.core.pulsar.message_ids import DeliveredId
from oncelog_doors.core.rest.fields import check_range, shown
from oncelog_doors.core.rest.messages import ShownMessages, shown_entry, shown_id, shown_message
from oncelog_doors.core.rest.places import id_of
from oncelog_doors.core.rest.refusals import Refused, refused_field
from oncelog_doors.rest.asking import Asking, AskingOf
from oncelog_doors.rest.log_calls import CallerOf, LogOf, TopicOf, in_time
from oncelog_doors.rest.paths import below
from oncelog_doors.rest.policies import TOPIC, PlaceOf
from oncelog_doors.rest.ports import LogPort
from oncelog_doors.rest.subscriptions import OneOf

_NUMBER_MAX = (1 << 63) - 1
_TIME_MAX = (1 << 53) - 1
_EDGES = ("earliest", "latest")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def routes() -> APIRouter:
    router = APIRouter()
    _add_messages(router)
    _add_ids(router)
    return router


def _add_messages(router: APIRouter) -> None:
    @router.get(f"{TOPIC}/ledger/{{ledger}}/entry/{{entry}}")
    async def by_id(topic: TopicOf, caller: CallerOf, log: LogOf, ledger: str, entry: str) -> Response:
        ledger_id = LedgerId(check_range("ledger", ledger, _NUMBER_MAX))
        position = Position(ledger_id, EntryId(check_range("entry", entry, _NUMBER_MAX)))
        return _response(shown_entry(await _entry(log, topic, caller, position), _moment))

    @router.get(f"{TOPIC}/examinemessage")
    async def examine(
        topic: TopicOf,
        caller: CallerOf,
        log: LogOf,
        place: PlaceOf,
        asking: AskingOf,
        edge: Annotated[str, Query(alias="initialPosition")] = "latest",
        number: Annotated[str, Query(alias="messagePosition")] = "1",
    ) -> Response:
        """A message by its number from either end, from 1 on."""
        if edge not in _EDGES:
            raise refused_field("initialPosition", f"{shown(edge)} is neither earliest nor latest")
        wanted = max(1, check_range("messagePosition", number, _NUMBER_MAX))
        page = await _page(asking, place)
        first, end = page["first_index"], page["end_index"]
        if first == end:
            raise Refused(412, f"topic {topic} has no messages")
        index = first + wanted - 1 if edge == "earliest" else end - wanted
        if not first <= index < end:
            raise refused_field("messagePosition", f"{wanted} is above the number of messages, {end - first}")
        found = await _page(asking, place, index=index)
        row = next((each for each in found["messages"] if each["index"] == index), None)
        if row is None:
            raise _unreadable(found, f"message {wanted} of topic {topic} is not kept any more")
        return await _message(log, topic, caller, row)

    @router.get(f"{TOPIC}/subscription/{{subscription}}/position/{{number}}")
    async def peek(topic: TopicOf, caller: CallerOf, log: LogOf, one: OneOf, asking: AskingOf, number: str) -> Response:
        return await _message(log, topic, caller, await asking.get(below(one, "position", number)))


def _add_ids(router: APIRouter) -> None:
    @router.get(f"{TOPIC}/messageid/{{time_ms}}")
    async def at_time(topic: TopicOf, place: PlaceOf, asking: AskingOf, time_ms: str) -> dict[str, int]:
        """Of the first message that was stored at this time or later; else the place directly behind the last one."""
        page = await _page(asking, place, time_ms=check_range("timestamp", time_ms, _TIME_MAX))
        if page["messages"]:
            return shown_id(_delivered(page["messages"][0]["message_id"]), topic.partition)
        last = await _page(asking, place, index=max(0, page["end_index"] - 1))
        if not last["messages"]:
            raise _unreadable(last, f"topic {topic} has no messages")
        ledger, entry = id_of(last["messages"][0]["message_id"])
        return shown_id(_delivered(f"{ledger}:{entry + 1}"), topic.partition)

    @router.get(f"{TOPIC}/lastMessageId")
    async def last(topic: TopicOf, caller: CallerOf, log: LogOf) -> dict[str, int]:
        return shown_id(await in_time(log.entries.last_id(topic, caller)), topic.partition)


async def _page(asking: Asking, place: str, **start: int) -> dict[str, Any]:
    """One message, without its value. start: none: the newest."""
    found: dict[str, Any] = await asking.get(f"{place}/messages", limit=1, values="false", **start)
    return found


def _unreadable(page: dict[str, Any], otherwise: str) -> Refused:
    """Why a page has no message."""
    unreadable = page.get("unreadable")
    return Refused(404, otherwise) if unreadable is None else Refused(503, unreadable["reason"], 1)


def _delivered(message_id: str) -> DeliveredId:
    """Of the entry."""
    ledger, entry = id_of(message_id)
    return DeliveredId(Position(LedgerId(ledger), EntryId(entry)))


async def _message(log: LogPort, topic: TopicName, caller: Caller, row: dict[str, Any]) -> Response:
    """row: of the cluster's REST."""
    position = _delivered(row["message_id"]).position
    return _response(shown_message(await _entry(log, topic, caller, position), row["index"], _moment))


async def _entry(log: LogPort, topic: TopicName, caller: Caller, position: Position) -> Delivery:
    """Raises Refused if no message is there."""
    found = await in_time(log.entries.at(topic, caller, position))
    if found is None:
        raise Refused(
            404, f"no message of topic {topic} is stored at {position}: it was deleted, or is of another topic"
        )
    return found


def _response(shown_messages: ShownMessages) -> Response:
    answer = Response(bytes(shown_messages.body), media_type="application/octet-stream")
    # As they are written: Pulsar's client takes properties from `X-Pulsar-PROPERTY` alone, and not in lower case.
    answer.raw_headers += [(name.encode("ascii"), value.encode("ascii")) for name, value in shown_messages.headers]
    return answer


def _moment(time_ms: int) -> str | None:
    """As `Moment`."""
    try:
        when = _EPOCH + timedelta(milliseconds=time_ms)
    except OverflowError:
        return None
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")
