"""The policies of a topic, a namespace or the cluster in words and units, and the fields of the forms that change them.

REST has the names and units of Pulsar: seconds, minutes, MiB, -1 for no limit. A person reads "7 days" and types a
number beside a unit. What a form means is worked out here; REST checks the ranges.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from oncelog.core.errors import InvalidArgument
from oncelog.metadata.console.shown import counted

_Query = Mapping[str, str]
SECONDS = {"seconds": 1, "minutes": 60, "hours": 3_600, "days": 86_400}
BYTES = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_ACTIONS = {
    "producer_request_hold": "publishing waits",
    "producer_exception": "publishing fails",
    "consumer_backlog_eviction": "the oldest messages count as acknowledged",
}
#: {level of REST: in words}
_SOURCES = {
    "topic": "from the topic",
    "partitioned_topic": "from the partitioned topic",
    "namespace": "from the namespace",
    "cluster": "from the cluster",
    "default": "by default",
}


def source_words(source: str, level: str) -> str:
    """Where a value comes from, as the page of a level says it. Both are levels of REST."""
    return "set here" if source == level else _SOURCES.get(source, source)


class Field(NamedTuple):
    """A field of a form. name: in the query; the unit is `name`_unit. kind: duration, size, count or choice. choices:
    {value: in words}. empty: what it means to leave a number out; none: it must be given."""

    name: str
    label: str
    kind: str
    choices: Mapping[str, str] = {}
    empty: str | None = None

    @property
    def units(self) -> list[str]:
        return list({"duration": SECONDS, "size": BYTES}.get(self.kind, {}))


@dataclass(frozen=True, slots=True)
class Policy:
    """One policy. title: what it is, in words. loss: what a change of it loses. words: its value, in words. body: of
    the request, from the query of a form; raises InvalidArgument. typed: {field: what the form shows for a value}."""

    title: str
    loss: str
    fields: tuple[Field, ...]
    words: Callable[[Any], str]
    body: Callable[[_Query], Any]
    typed: Callable[[Any], Mapping[str, Any]]

    def shown(self, value: Any) -> list[tuple[Field, str, str]]:
        """The fields of the form for a value: (field, what is typed, unit)."""
        given = self.typed(value)
        return [(field, *_typed(field, given[field.name])) for field in self.fields]


def duration_words(seconds: int) -> str:
    """7 days, 90 minutes: in the largest unit that is exact."""
    return _words(seconds, SECONDS)


def size_words(size: int) -> str:
    """10 GiB: in the largest unit that is exact."""
    return _words(size, BYTES)


def _words(value: int, units: Mapping[str, int]) -> str:
    unit, count = _exact(value, units)
    return counted(count, unit.removesuffix("s"), unit) if unit in SECONDS or unit == "bytes" else f"{count} {unit}"


def _exact(value: int, units: Mapping[str, int]) -> tuple[str, int]:
    """The largest unit that is exact, and how many."""
    unit = max((name for name, size in units.items() if value % size == 0), key=units.__getitem__)
    return (unit, value // units[unit]) if value else (next(iter(units)), 0)


def _typed(field: Field, value: Any) -> tuple[str, str]:
    """value: None leaves a number out."""
    units = {"duration": SECONDS, "size": BYTES}.get(field.kind)
    if units is None or value is None:
        return "" if value is None else str(value), "days" if field.kind == "duration" else "GiB"
    unit, count = _exact(value, units)
    return str(count), unit


def _number(query: _Query, field: Field) -> int | None:
    """In the smallest unit; None: it was left out. Raises InvalidArgument."""
    text = "".join(query.get(field.name, "").split())
    if not text and field.empty is not None:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= 18):
        raise InvalidArgument(f"{field.name}: give a whole number, 0 or more", field=field.name)
    units = {"duration": SECONDS, "size": BYTES}.get(field.kind)
    if units is None:
        return int(text)
    unit = query.get(f"{field.name}_unit", "")
    if unit not in units:
        raise InvalidArgument(f"{field.name}_unit: give {', '.join(units)}", field=f"{field.name}_unit")
    return int(text) * units[unit]


def _choice(query: _Query, field: Field) -> str:
    """Raises InvalidArgument."""
    value = query.get(field.name, "")
    if value not in field.choices:
        raise InvalidArgument(f"{field.name}: give {', '.join(field.choices)}", field=field.name)
    return value


def _switch(title: str, loss: str, on: str, off: str) -> Policy:
    field = Field("state", "It is", "choice", {"on": f"on: {on}", "off": f"off: {off}"})
    return Policy(
        title, loss, (field,), lambda value: f"on: {on}" if value else f"off: {off}",
        lambda query: _choice(query, field) == "on", lambda value: {"state": "on" if value else "off"},
    )  # fmt: skip


def _plain(title: str, loss: str, label: str, kind: str, words: Callable[[int], str], zero: str | None) -> Policy:
    """One number. zero: what 0 means, which is what an empty field sends; none: it must be given."""
    field = Field("number", label, kind, empty=zero)
    return Policy(
        title, loss, (field,), lambda value: zero if zero and not value else words(value),
        lambda query: _number(query, field) or 0, lambda value: {"number": value if value or not zero else None},
    )  # fmt: skip


_TIME = Field("time", "For at most", "duration", empty="no limit of time")
_SIZE = Field("size", "At most in all", "size", empty="no limit of size")
_AGE = Field("time", "The oldest message may be", "duration", empty="of any age")
_BACKLOG = Field("size", "The backlog may have", "size", empty="any size")
_ACTION = Field("action", "Above that", "choice", _ACTIONS)


def _limit(value: int) -> int | None:
    return None if value < 0 else value


def _retention_words(value: Mapping[str, int]) -> str:
    minutes, size_mb = _limit(value["retentionTimeInMinutes"]), _limit(value["retentionSizeInMB"])
    if minutes == size_mb == 0:
        return "delete as soon as all subscriptions have acknowledged"
    kept = [] if minutes is None else [f"keep {duration_words(minutes * 60)}"]
    kept += [] if size_mb is None else [f"{'' if kept else 'keep '}at most {size_words(size_mb << 20)}"]
    return ", ".join(kept) or "keep for ever"


def _retention_body(query: _Query) -> dict[str, int]:
    seconds, size = _number(query, _TIME), _number(query, _SIZE)
    for field, value, unit, name in ((_TIME, seconds, 60, "minutes"), (_SIZE, size, 1 << 20, "MiB")):
        if value is not None and value % unit:
            raise InvalidArgument(f"{field.name}: give whole {name}", field=field.name)
    return {
        "retentionTimeInMinutes": -1 if seconds is None else seconds // 60,
        "retentionSizeInMB": -1 if size is None else size >> 20,
    }


def _retention_typed(value: Mapping[str, int]) -> Mapping[str, int | None]:
    minutes, size_mb = _limit(value["retentionTimeInMinutes"]), _limit(value["retentionSizeInMB"])
    return {
        "time": None if minutes is None else minutes * 60,
        "size": None if size_mb is None else size_mb << 20,
    }


def _quota_words(value: Mapping[str, Any]) -> str:
    size, seconds = _limit(value["limitSize"]), _limit(value["limitTime"])
    limits = [] if size is None else [f"above {size_words(size)}"]
    limits += [] if seconds is None else [f"if its oldest message is older than {duration_words(seconds)}"]
    return f"{' or '.join(limits)}: {_ACTIONS[value['policy']]}" if limits else "no limit"


def _quota_body(query: _Query) -> dict[str, Any]:
    size, seconds = _number(query, _BACKLOG), _number(query, _AGE)
    return {
        "limitSize": -1 if size is None else size,
        "limitTime": -1 if seconds is None else seconds,
        "policy": _choice(query, _ACTION),
    }


def _quota_typed(value: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"size": _limit(value["limitSize"]), "time": _limit(value["limitTime"]), "action": value["policy"]}


_DEDUPLICATION = _switch(
    "Deduplication",
    "While it is off, a message that is sent again is stored again, and its consumers get it again; switched on "
    "again, the log does not know which of these messages it has.",
    "a message that is sent again is not stored again", "a message that is sent again is stored again",
)  # fmt: skip
_FORGOTTEN = (
    "Producers that are idle for longer are forgotten: what they send again is stored again. The time counts from the "
    "change on."
)
_ACK_STATE = (
    "No message is lost. Above the limit a subscription gets no new messages, if that pause is on; 0 lets it get none "
    "while any message is acknowledged out of order."
)
#: {name in REST: policy}. One that is not here is not changed by the console.
POLICIES: dict[str, Policy] = {
    "retention": Policy(
        "Retention of acknowledged messages",
        "Messages that every subscription has acknowledged and that are beyond the limits are deleted for ever, soon "
        "after the change. Without a subscription this holds for all messages.",
        (_TIME, _SIZE), _retention_words, _retention_body, _retention_typed,
    ),
    "messageTTL": _plain(
        "Expiry of messages",
        "A message that is older counts as acknowledged by every subscription: it is not delivered any more.",
        "Messages expire after", "duration", lambda value: f"after {duration_words(value)}", "never",
    ),
    "backlogQuota": Policy(
        "Limit of a backlog",
        "Above the limits publishing waits, or fails, or the oldest messages count as acknowledged and are not "
        "delivered any more, as the form says.",
        (_BACKLOG, _AGE, _ACTION), _quota_words, _quota_body, _quota_typed,
    ),
    "deduplicationEnabled": _DEDUPLICATION,
    "deduplication": _DEDUPLICATION,
    "autoTopicCreation": _switch(
        "Creation of topics by use",
        "No message is lost. While it is off, producers, consumers and readers of a topic that does not exist are "
        "refused.",
        "a topic is created by its first use", "a topic must be created before its first use",
    ),
    "assignedProducerExpiry": _plain(
        "Expiry of producers with assigned names", _FORGOTTEN, "Idle producers are forgotten after", "duration",
        lambda value: f"after {duration_words(value)} without activity", "never",
    ),
    "chosenProducerExpiry": _plain(
        "Expiry of producers with chosen names", _FORGOTTEN, "Idle producers are forgotten after", "duration",
        lambda value: f"after {duration_words(value)} without activity", "never",
    ),
    "producerLeaseExpiry": _plain(
        "Expiry of leased producer ids", "Leases that are made from now on expire after this time, if they state none.",
        "A lease that states no time expires after", "duration", lambda value: f"after {duration_words(value)}", None,
    ),
    "maxKnownProducersPerTopic": _plain(
        "Producers that a topic remembers", "At the cap no new producer is opened; known ones go on.",
        "At most", "count", lambda value: f"at most {counted(value, 'producer')}", "no cap",
    ),
    "maxKnownProducersPerNamespace": _plain(
        "Producers that the topics of a namespace remember", "At the cap no new producer is opened; known ones go on.",
        "At one topic owner, at most", "count",
        lambda value: f"at most {counted(value, 'producer')} at one topic owner", "no cap",
    ),
    "dispatcherPauseOnAckStatePersistent": _switch(
        "Pause at the limits of ack state",
        "No message is lost. While it is on, a subscription whose ack state is above its limit gets no new messages.",
        "a subscription above a limit gets no new messages", "the limits of ack state stop nothing",
    ),
    "maxUnackedRangesToPersist": _plain(
        "Limit of acknowledged ranges", _ACK_STATE, "At most", "count",
        lambda value: f"at most {counted(value, 'range')}", None,
    ),
    "ackStateBytesMax": _plain(
        "Limit of ack state", _ACK_STATE, "At most", "size", lambda value: f"at most {size_words(value)}", None,
    ),
    "pulsarNewInstanceFences": _switch(
        "Second instance of a producer of Pulsar",
        "No message is lost. While it is on, the connected instance of the name ends for good.",
        "a new instance takes the name at once", "a new instance is refused while another one is connected",
    ),
    "pulsarAcceptStale": _switch(
        "Pulsar: ids between stored ones",
        "While it is on, such messages are lost: their producers get a success, as in Pulsar.",
        "they are confirmed, and not stored", "they are refused",
    ),
    "pulsarAcceptOtherContent": _switch(
        "Pulsar: another message under a stored id",
        "While it is on, such messages are lost: their producers get a success, as in Pulsar.",
        "it is confirmed, and not stored", "it is refused",
    ),
    "pulsarRefuseUnverified": _switch(
        "Pulsar: ids that are too old to be compared",
        "No message is lost. While it is on, a producer that sends its messages again from far back fails.",
        "they are refused", "they are confirmed, and not stored",
    ),
    "pulsarAckUndecodable": _switch(
        "Pulsar: messages that a client cannot decode",
        "While it is on, such messages are lost to the subscription, as in Pulsar.",
        "they are acknowledged", "they are delivered again after a minute",
    ),
    "kafkaCompact": _switch(
        "Kafka: shown as compacted",
        "Nothing is compacted. Kafka Connect and others start only if their topics are shown so.",
        "clients are shown cleanup.policy=compact", "clients are shown cleanup.policy=delete",
    ),
}  # fmt: skip
