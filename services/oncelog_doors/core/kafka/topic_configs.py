"""Configurations of topics and of the broker, as clients of Kafka have them, and what they mean here.

    retention.ms, retention.bytes    the topic's retention policy, rounded up to whole minutes and MiB
    cleanup.policy                   `delete`, or whether clients are shown that the topic is compacted. Nothing is
                                     compacted: `compact` keeps all messages, `compact,delete` keeps them by retention
    segment.bytes and others that    any value is taken and has no effect
    say how a broker keeps its files
    all others                       have one value, which is shown and cannot be changed

Kafka Connect starts only if its topics have cleanup.policy=compact (hazard compact-refused). Their readers need no more
than a log that keeps everything. Programs create topics with values that they have built in, and do not start if one is
refused (hazard built-in-config-refused): Kafka Streams gives segment.bytes to a topic that it repartitions by, and
Quix Streams gives the retention of its input to a topic with `compact`, where it has no effect on Kafka either.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from oncelog.core.errors import InvalidArgument

RETENTION_MS, RETENTION_BYTES, CLEANUP_POLICY = "retention.ms", "retention.bytes", "cleanup.policy"
SETTABLE = (RETENTION_MS, RETENTION_BYTES, CLEANUP_POLICY)
NO_LIMIT = -1
_MINUTE_MS = 60_000
_MIB = 1 << 20
#: The highest number of a retention policy; a longer retention is none.
_POLICY_MAX = 2**31 - 1
_LONG_MAX = 2**63 - 1
_NUMBER = re.compile(r"-?[0-9]{1,19}")
_DECIMAL = re.compile(r"[0-9]{1,19}(\.[0-9]{1,19})?")
_BOOLEAN = re.compile(r"(?i:true|false)")
_SHOWN_CHARACTERS = 60
_DELETE, _COMPACT = "delete", "compact"


class InvalidConfig(InvalidArgument):
    """A configuration that cannot be set. details: field, its name."""


class Source(IntEnum):
    """Where a value comes from. The numbers are Kafka's."""

    TOPIC = 1
    DEFAULT_OF_CLUSTER = 3
    BROKER = 4
    DEFAULT = 5


class Kind(IntEnum):
    """The type of a value. The numbers are Kafka's."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


class Retention(NamedTuple):
    """-1: no limit."""

    minutes: int
    mib: int


FOR_EVER = Retention(NO_LIMIT, NO_LIMIT)


@dataclass(frozen=True, slots=True)
class OwnConfigs:
    """The policies that are set on the topic itself. None: not set. compact: clients are shown `compact`."""

    retention: Retention | None = None
    compact: bool | None = None


@dataclass(frozen=True, slots=True)
class AppliedConfigs:
    """The policies that apply to a topic, and where they are set."""

    retention: Retention = FOR_EVER
    retention_source: Source = Source.DEFAULT
    compact: bool = False
    compact_source: Source = Source.DEFAULT

    @property
    def cleanup_policy(self) -> str:
        if not self.compact:
            return _DELETE
        return _COMPACT if self.retention == FOR_EVER else f"{_COMPACT},{_DELETE}"


class Config(NamedTuple):
    """One configuration as it is shown."""

    name: str
    value: str
    kind: Kind
    source: Source = Source.DEFAULT
    read_only: bool = True


def topic_configs(applied: AppliedConfigs, message_bytes_max: int) -> list[Config]:
    """All of a topic, by name."""
    minutes, mib = applied.retention
    source = applied.retention_source
    own = [
        Config(RETENTION_MS, str(_scaled(minutes, _MINUTE_MS)), Kind.LONG, source, read_only=False),
        Config(RETENTION_BYTES, str(_scaled(mib, _MIB)), Kind.LONG, source, read_only=False),
        Config(CLEANUP_POLICY, applied.cleanup_policy, Kind.LIST, applied.compact_source, read_only=False),
    ]
    return sorted([*own, *_fixed(message_bytes_max)])


def broker_configs(node_id: int, message_bytes_max: int, partitions_default: int) -> list[Config]:
    """What clients look at to learn what the cluster does. partitions_default: of new topics."""
    return sorted(
        [
            Config("broker.id", str(node_id), Kind.INT, Source.BROKER),
            Config("message.max.bytes", str(message_bytes_max), Kind.INT, Source.BROKER),
            Config("num.partitions", str(partitions_default), Kind.INT, Source.BROKER),
            *(Config(*each) for each in _OF_BROKER),
        ]
    )


def changed(
    own: OwnConfigs, applied: AppliedConfigs, changes: Mapping[str, str | None], message_bytes_max: int
) -> OwnConfigs:
    """What is set on a topic after some configurations have changed. own, applied: before that. changes: {name: value};
    None: the default, which the namespace decides. Raises InvalidConfig."""
    fixed = {each.name: each for each in _fixed(message_bytes_max)}
    for name, value in changes.items():
        if name not in SETTABLE:
            _check_fixed(name, value, fixed)
    compact, compact_only = own.compact, applied.compact and applied.retention == FOR_EVER
    if CLEANUP_POLICY in changes:
        words = _words(changes[CLEANUP_POLICY])
        compact = None if words is None else _COMPACT in words
        compact_only = words == {_COMPACT}
    retention = _retention(own, applied.retention, changes)
    if not compact_only:
        return OwnConfigs(retention, compact)
    for name in (RETENTION_MS, RETENTION_BYTES):
        # A request that names the policy, too, says itself that its limits have no effect. One that does not, expects
        # that something is deleted.
        if _number(name, changes.get(name)) not in (None, NO_LIMIT) and CLEANUP_POLICY not in changes:
            message = (
                f"{name}: with {CLEANUP_POLICY}={_COMPACT} all messages are kept: leave it out, or set "
                f"{CLEANUP_POLICY}={_COMPACT},{_DELETE}, too"
            )
            raise InvalidConfig(message, field=name, limit=NO_LIMIT)
    # Set on the topic: another retention of its namespace must not delete what is kept for ever.
    return OwnConfigs(FOR_EVER if any(name in changes for name in SETTABLE) else retention, compact)


def replacement(given: Mapping[str, str | None]) -> dict[str, str | None]:
    """The changes that leave only what is given: AlterConfigs replaces all."""
    return dict.fromkeys(SETTABLE) | dict(given)


def _check_fixed(name: str, value: str | None, fixed: Mapping[str, Config]) -> None:
    shown = name[:_SHOWN_CHARACTERS]
    if name not in fixed:
        raise InvalidConfig(f"{shown}: a topic has no such configuration: leave it out", field=shown)
    if value is None or value.strip() == fixed[name].value:
        return
    given = value[:_SHOWN_CHARACTERS]
    if name not in _OF_FILES:
        message = f"{shown}: it is {fixed[name].value} and cannot be set to {given!r}: leave it out"
        raise InvalidConfig(message, field=shown)
    if not _FORMS[fixed[name].kind].fullmatch(value.strip()):
        message = f"{shown}: {given!r} must be a value of type {fixed[name].kind.name.lower()}, or left out"
        raise InvalidConfig(message, field=shown)


def _words(value: str | None) -> set[str] | None:
    """Of cleanup.policy. None: the default."""
    if value is None:
        return None
    words = {each.strip() for each in value.split(",")}
    if not words <= {_DELETE, _COMPACT}:
        message = f"{CLEANUP_POLICY}: {value[:_SHOWN_CHARACTERS]!r} must be {_DELETE}, {_COMPACT} or both, with a comma"
        raise InvalidConfig(message, field=CLEANUP_POLICY)
    return words


def _retention(own: OwnConfigs, applied: Retention, changes: Mapping[str, str | None]) -> Retention | None:
    """The two limits are one policy: the limit that is not named keeps the value that applies."""
    given = {name: value for name, value in changes.items() if name in {RETENTION_MS, RETENTION_BYTES}}
    is_unset = not any(value is not None for value in given.values())
    if not given or (own.retention is None and is_unset):
        return own.retention
    minutes, mib = own.retention or applied
    if RETENTION_MS in given:
        minutes = _limit(RETENTION_MS, given[RETENTION_MS], _MINUTE_MS)
    if RETENTION_BYTES in given:
        mib = _limit(RETENTION_BYTES, given[RETENTION_BYTES], _MIB)
    return None if is_unset and (minutes, mib) == FOR_EVER else Retention(minutes, mib)


def _limit(name: str, value: str | None, unit: int) -> int:
    """In the units of the policy, so that no less is kept than asked for."""
    number = _number(name, value)
    if number is None or number == NO_LIMIT:
        return NO_LIMIT
    units = -(-number // unit)
    return units if units <= _POLICY_MAX else NO_LIMIT


def _number(name: str, value: str | None) -> int | None:
    if value is None:
        return None
    text = value.strip()
    number = int(text) if _NUMBER.fullmatch(text) else 0
    if number != NO_LIMIT and not 1 <= number <= _LONG_MAX:
        message = f"{name}: {value[:_SHOWN_CHARACTERS]!r} must be -1 for no limit, or 1 to {_LONG_MAX}"
        raise InvalidConfig(message, field=name, limit=1)
    return number


def _scaled(value: int, unit: int) -> int:
    return value if value == NO_LIMIT else value * unit


def _fixed(message_bytes_max: int) -> list[Config]:
    """What cannot be changed."""
    return [
        Config("max.message.bytes", str(message_bytes_max), Kind.INT, Source.BROKER),
        *(Config(*each) for each in _OF_TOPIC),
    ]


#: min.insync.replicas: of the one replica that clients are shown. Clients count it against the replicas in sync, and
#: report a topic as unsafe that has fewer.
_OF_TOPIC = (
    ("compression.type", "producer", Kind.STRING),
    ("delete.retention.ms", "86400000", Kind.LONG),
    ("file.delete.delay.ms", "60000", Kind.LONG),
    ("flush.messages", str(_LONG_MAX), Kind.LONG),
    ("flush.ms", str(_LONG_MAX), Kind.LONG),
    ("index.interval.bytes", "4096", Kind.INT),
    ("max.compaction.lag.ms", str(_LONG_MAX), Kind.LONG),
    ("message.timestamp.type", "CreateTime", Kind.STRING),
    ("min.cleanable.dirty.ratio", "0.5", Kind.DOUBLE),
    ("min.compaction.lag.ms", "0", Kind.LONG),
    ("min.insync.replicas", "1", Kind.INT),
    ("preallocate", "false", Kind.BOOLEAN),
    ("segment.bytes", "1073741824", Kind.INT),
    ("segment.index.bytes", "10485760", Kind.INT),
    ("segment.jitter.ms", "0", Kind.LONG),
    ("segment.ms", "604800000", Kind.LONG),
    ("unclean.leader.election.enable", "false", Kind.BOOLEAN),
)
#: How a broker keeps its files, and from when on it may compact or delete. Whatever the value, no less is kept here.
#: Not max.compaction.lag.ms: it promises that former values are gone after a time, and they are not.
_OF_FILES = frozenset(
    {
        "delete.retention.ms",
        "file.delete.delay.ms",
        "flush.messages",
        "flush.ms",
        "index.interval.bytes",
        "min.cleanable.dirty.ratio",
        "min.compaction.lag.ms",
        "preallocate",
        "segment.bytes",
        "segment.index.bytes",
        "segment.jitter.ms",
        "segment.ms",
    }
)
_FORMS = {Kind.BOOLEAN: _BOOLEAN, Kind.INT: _NUMBER, Kind.LONG: _NUMBER, Kind.DOUBLE: _DECIMAL}
_OF_BROKER = (
    ("auto.create.topics.enable", "true", Kind.BOOLEAN),
    ("compression.type", "producer", Kind.STRING),
    ("default.replication.factor", "1", Kind.INT),
    ("delete.topic.enable", "true", Kind.BOOLEAN),
    ("log.cleanup.policy", _DELETE, Kind.LIST),
    ("log.message.timestamp.type", "CreateTime", Kind.STRING),
    ("log.retention.bytes", "-1", Kind.LONG),
    ("log.retention.ms", "-1", Kind.LONG),
    ("min.insync.replicas", "1", Kind.INT),
    ("unclean.leader.election.enable", "false", Kind.BOOLEAN),
)
