"""The policies of one level, their record, and which level decides.

Rules
- A policy that is not set (None) decides nothing; it is not "false".
- The effective value comes with its source, so that operators see why a topic behaves as it does.
- Fields that this version does not know are preserved when it writes the record.
- A limit that is set to "none" is a value, not an absence: it overrides the levels behind it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Generic, TypeVar

from oncelog.core.access import Permissions
from oncelog.core.policies.ack_state_limit import ACK_STATE_BYTES_MAX, TOPIC_STATE_BYTES_MAX, UNACKED_RANGES_MAX
from oncelog.core.policies.retention_rules import BacklogQuota, QuotaAction, RetentionPolicy
from oncelog.metadata_store.records.json_records import decode_record, encode_record

T = TypeVar("T")
#: The highest value of a limit in a record: milliseconds, bytes or counts.
NUMBER_MAX = 2**62


class PolicySource(Enum):
    """The level that set an effective policy."""

    TOPIC = "topic"
    #: the partitioned topic that this topic is a partition of
    PARTITIONED_TOPIC = "partitioned_topic"
    NAMESPACE = "namespace"
    CLUSTER = "cluster"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Policies:
    """deduplication: check batches by sequence id. auto_create_topics: the first use creates a topic.

    retention: how long acknowledged messages are kept. message_ttl_s: seconds after which a message counts as
    acknowledged; 0: never. backlog_quota: how much may be unacknowledged, and what happens then.

    dispatcher_pause_on_ack_state_persistent_enabled, max_unacked_ranges_to_persist, ack_state_bytes_max: PIP-299.
    """

    deduplication: bool | None = None
    auto_create_topics: bool | None = None
    retention: RetentionPolicy | None = None
    message_ttl_s: int | None = None
    backlog_quota: BacklogQuota | None = None
    dispatcher_pause_on_ack_state_persistent_enabled: bool | None = None
    max_unacked_ranges_to_persist: int | None = None
    ack_state_bytes_max: int | None = None
    #: the rights of each role in a namespace; only there
    permissions: Permissions = field(default_factory=dict)
    #: Fields of a later version, as read.
    further: Mapping[str, object] = field(default_factory=dict)


#: The policies where no level sets one.
DEFAULTS = Policies(
    deduplication=True,
    auto_create_topics=True,
    retention=RetentionPolicy(),
    message_ttl_s=0,
    backlog_quota=BacklogQuota(QuotaAction.HOLD),
    dispatcher_pause_on_ack_state_persistent_enabled=False,
    max_unacked_ranges_to_persist=UNACKED_RANGES_MAX,
    ack_state_bytes_max=ACK_STATE_BYTES_MAX,
)


@dataclass(frozen=True, slots=True)
class Effective(Generic[T]):
    value: T
    source: PolicySource


@dataclass(frozen=True, slots=True)
class EffectivePolicies:
    """The policies of a topic or a namespace, each with its source; see Policies."""

    deduplication: Effective[bool]
    auto_create_topics: Effective[bool]
    retention: Effective[RetentionPolicy]
    message_ttl_s: Effective[int]
    backlog_quota: Effective[BacklogQuota]
    dispatcher_pause_on_ack_state_persistent_enabled: Effective[bool]
    max_unacked_ranges_to_persist: Effective[int]
    ack_state_bytes_max: Effective[int]
    #: those of the namespace
    grants: Permissions = field(default_factory=dict)


def nearest(layers: list[tuple[Policies, PolicySource]]) -> EffectivePolicies:
    """layers: nearest first. The defaults come after the last."""

    def effective(name: str) -> Effective[Any]:
        for policies, source in (*layers, (DEFAULTS, PolicySource.DEFAULT)):
            if (value := getattr(policies, name)) is not None:
                return Effective(value, source)
        raise AssertionError(f"unreachable: {name} has a default")

    grants = next((policies.permissions for policies, source in layers if source is PolicySource.NAMESPACE), {})
    return EffectivePolicies(**{name: effective(name) for name in _CODECS}, grants=grants)


# --- the record -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Codec:
    """decode: raises ValueError, KeyError, TypeError."""

    decode: Callable[[Any], object]
    encode: Callable[[Any], object] = lambda value: value


def _switch(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"a switch must be true or false: {value!r}")
    return value


def _limit(highest: int) -> Callable[[object], int]:
    def decode(value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= highest:
            raise ValueError(f"a limit must be a number from 0 to {highest}: {value!r}")
        return value

    return decode


_number = _limit(NUMBER_MAX)


def _number_or_none(value: object) -> int | None:
    return None if value is None else _number(value)


def _retention(value: Any) -> RetentionPolicy:
    return RetentionPolicy(_number_or_none(value["time_ms"]), _number_or_none(value["size_bytes"]))


def _quota(value: Any) -> BacklogQuota:
    action = QuotaAction(value["action"])
    return BacklogQuota(action, _number_or_none(value["bytes_max"]), _number_or_none(value["age_ms_max"]))


#: {policy: its form in the record}
_CODECS = {
    "deduplication": _Codec(_switch),
    "auto_create_topics": _Codec(_switch),
    "retention": _Codec(_retention, lambda value: {"time_ms": value.time_ms, "size_bytes": value.size_bytes}),
    "message_ttl_s": _Codec(_number),
    "backlog_quota": _Codec(
        _quota,
        lambda value: {
            "action": value.action.value,
            "bytes_max": value.bytes_max,
            "age_ms_max": value.age_ms_max,
        },
    ),
    "dispatcher_pause_on_ack_state_persistent_enabled": _Codec(_switch),
    "max_unacked_ranges_to_persist": _Codec(_number),
    "ack_state_bytes_max": _Codec(_limit(TOPIC_STATE_BYTES_MAX)),
}


def encode_policies(policies: Policies) -> bytes:
    known = {
        name: codec.encode(value) for name, codec in _CODECS.items() if (value := getattr(policies, name)) is not None
    }
    granted = {"permissions": dict(policies.permissions)} if policies.permissions else {}
    return encode_record({**policies.further, **known, **granted})


def decode_policies(data: bytes) -> Policies:
    """Raises CorruptEntry."""
    return decode_record(data, "a policies record", _build)


def _build(fields: dict[str, Any]) -> Policies:
    del fields["format"]  # `further` must not keep it
    values: dict[str, Any] = {}
    for name, codec in _CODECS.items():
        value = fields.pop(name, None)
        values[name] = None if value is None else codec.decode(value)
    return Policies(**values, permissions=_grants(fields.pop("permissions", {})), further=fields)


def _grants(value: object) -> Permissions:
    """An invalid value must not pass for "no grants": that would be written back."""
    if not isinstance(value, dict):
        raise ValueError(f"permissions must be an object: {value!r}")
    for role, rights in value.items():
        if not isinstance(rights, list) or not all(isinstance(right, str) for right in rights):
            raise ValueError(f"the rights of role {role!r} must be a list of names")
    return {role: tuple(rights) for role, rights in value.items()}
