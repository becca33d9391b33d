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
from typing import Annotated, Any, Generic, NamedTuple, TypeVar, get_type_hints

from oncelog.core.access import Permissions
from oncelog.core.policies.ack_state_limit import ACK_STATE_BYTES_MAX, TOPIC_STATE_BYTES_MAX, UNACKED_RANGES_MAX
from oncelog.core.policies.producer_caps import NAMESPACE_PRODUCERS_MAX, TOPIC_PRODUCERS_MAX
from oncelog.core.policies.producer_lifetimes import LEASE_MS, LEASE_MS_MAX, LEASE_MS_MIN, POLICY_MS_MIN
from oncelog.core.policies.retention_rules import BacklogQuota, QuotaAction, RetentionPolicy
from oncelog.metadata_store.records.json_records import decode_record, encode_record

T = TypeVar("T")
#: The highest value of a limit in a record: milliseconds, bytes or counts.
NUMBER_MAX = 2**62
#: How much longer a record gets when a restore closes its rights: one field more, with the same grants.
CLOSING_BYTES_MAX = 64


class PolicySource(Enum):
    """The level that set an effective policy."""

    TOPIC = "topic"
    #: the partitioned topic that this topic is a partition of
    PARTITIONED_TOPIC = "partitioned_topic"
    NAMESPACE = "namespace"
    CLUSTER = "cluster"
    DEFAULT = "default"


class _Rule(NamedTuple):
    """What holds where no level sets the policy, and its form in the record. decode: raises ValueError, KeyError,
    TypeError."""

    default: object
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


def _lifetime_s(value: object) -> int:
    if (seconds := _number(value)) and seconds * 1000 < POLICY_MS_MIN:
        raise ValueError(f"a lifetime of names must be 0 or at least {POLICY_MS_MIN // 1000} s: {value!r}")
    return seconds


def _lease_s(value: object) -> int:
    if not LEASE_MS_MIN <= (seconds := _number(value)) * 1000 <= LEASE_MS_MAX:
        raise ValueError(f"a lease must last {LEASE_MS_MIN // 1000} to {LEASE_MS_MAX // 1000} s: {value!r}")
    return seconds


def _number_or_none(value: object) -> int | None:
    return None if value is None else _number(value)


def _retention(value: Any) -> RetentionPolicy:
    return RetentionPolicy(_number_or_none(value["time_ms"]), _number_or_none(value["size_bytes"]))


def _quota(value: Any) -> BacklogQuota:
    action = QuotaAction(value["action"])
    return BacklogQuota(action, _number_or_none(value["bytes_max"]), _number_or_none(value["age_ms_max"]))


def _retention_fields(policy: RetentionPolicy) -> object:
    return {"time_ms": policy.time_ms, "size_bytes": policy.size_bytes}


def _quota_fields(quota: BacklogQuota) -> object:
    return {"action": quota.action.value, "bytes_max": quota.bytes_max, "age_ms_max": quota.age_ms_max}


@dataclass(frozen=True, slots=True)
class Policies:
    """deduplication: check batches by sequence id. auto_create_topics: the first use creates a topic.

    retention: how long acknowledged messages are kept. message_ttl_s: seconds after which a message counts as
    acknowledged; 0: never. backlog_quota: how much may be unacknowledged, and what happens then.

    dispatcher_pause_on_ack_state_persistent_enabled, max_unacked_ranges_to_persist, ack_state_bytes_max: PIP-299.

    assigned_producer_expiry_s, chosen_producer_expiry_s: seconds that a producer is remembered after its last message,
    if its name was assigned, or chosen; 0: for ever. producer_lease_expiry_s: of a lease that states no time.
    max_known_producers_per_topic, max_known_producers_per_namespace: see `producer_caps`; 0: no cap.

    pulsar_new_instance_fences and the others: what a door does for clients of Pulsar and Kafka; only doors read them.
    """

    deduplication: Annotated[bool | None, _Rule(True, _switch)] = None
    auto_create_topics: Annotated[bool | None, _Rule(True, _switch)] = None
    retention: Annotated[RetentionPolicy | None, _Rule(RetentionPolicy(), _retention, _retention_fields)] = None
    message_ttl_s: Annotated[int | None, _Rule(0, _number)] = None
    backlog_quota: Annotated[BacklogQuota | None, _Rule(BacklogQuota(QuotaAction.HOLD), _quota, _quota_fields)] = None
    dispatcher_pause_on_ack_state_persistent_enabled: Annotated[bool | None, _Rule(False, _switch)] = None
    max_unacked_ranges_to_persist: Annotated[int | None, _Rule(UNACKED_RANGES_MAX, _number)] = None
    ack_state_bytes_max: Annotated[int | None, _Rule(ACK_STATE_BYTES_MAX, _limit(TOPIC_STATE_BYTES_MAX))] = None
    assigned_producer_expiry_s: Annotated[int | None, _Rule(LEASE_MS // 1000, _lifetime_s)] = None
    chosen_producer_expiry_s: Annotated[int | None, _Rule(0, _lifetime_s)] = None
    producer_lease_expiry_s: Annotated[int | None, _Rule(LEASE_MS // 1000, _lease_s)] = None
    max_known_producers_per_topic: Annotated[int | None, _Rule(TOPIC_PRODUCERS_MAX, _number)] = None
    max_known_producers_per_namespace: Annotated[int | None, _Rule(NAMESPACE_PRODUCERS_MAX, _number)] = None
    pulsar_new_instance_fences: Annotated[bool | None, _Rule(False, _switch)] = None
    pulsar_accept_stale: Annotated[bool | None, _Rule(False, _switch)] = None
    pulsar_accept_other_content: Annotated[bool | None, _Rule(False, _switch)] = None
    pulsar_refuse_unverified: Annotated[bool | None, _Rule(False, _switch)] = None
    pulsar_ack_undecodable: Annotated[bool | None, _Rule(False, _switch)] = None
    kafka_compact: Annotated[bool | None, _Rule(False, _switch)] = None
    #: the rights of each role in a namespace; only there
    permissions: Permissions = field(default_factory=dict)
    #: Fields of a later version, as read.
    further: Mapping[str, object] = field(default_factory=dict)


#: {policy: its rule}
_RULES: Mapping[str, _Rule] = {
    name: rule
    for name, annotation in get_type_hints(Policies, include_extras=True).items()
    for rule in getattr(annotation, "__metadata__", ())
}


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
    assigned_producer_expiry_s: Effective[int]
    chosen_producer_expiry_s: Effective[int]
    producer_lease_expiry_s: Effective[int]
    max_known_producers_per_topic: Effective[int]
    max_known_producers_per_namespace: Effective[int]
    pulsar_new_instance_fences: Effective[bool]
    pulsar_accept_stale: Effective[bool]
    pulsar_accept_other_content: Effective[bool]
    pulsar_refuse_unverified: Effective[bool]
    pulsar_ack_undecodable: Effective[bool]
    kafka_compact: Effective[bool]
    #: those of the namespace
    grants: Permissions = field(default_factory=dict)


def nearest(layers: list[tuple[Policies, PolicySource]]) -> EffectivePolicies:
    """layers: nearest first. The defaults come after the last."""

    def effective(name: str) -> Effective[Any]:
        for policies, source in layers:
            if (value := getattr(policies, name)) is not None:
                return Effective(value, source)
        return Effective(_RULES[name].default, PolicySource.DEFAULT)

    grants = next((policies.permissions for policies, source in layers if source is PolicySource.NAMESPACE), {})
    return EffectivePolicies(**{name: effective(name) for name in _RULES}, grants=grants)


# --- the record -------------------------------------------------------------------------------------------------------


def encode_policies(policies: Policies) -> bytes:
    known = {
        name: rule.encode(value) for name, rule in _RULES.items() if (value := getattr(policies, name)) is not None
    }
    granted = {"permissions": dict(policies.permissions)} if policies.permissions else {}
    return encode_record({**policies.further, **known, **granted})


def decode_policies(data: bytes, path: str = "") -> Policies:
    """Raises CorruptEntry."""
    return decode_record(data, "a policies record", _build, path=path)


def _build(given: dict[str, Any]) -> Policies:
    del given["format"]  # `further` must not keep it
    values: dict[str, Any] = {}
    for name, rule in _RULES.items():
        value = given.pop(name, None)
        values[name] = None if value is None else rule.decode(value)
    return Policies(**values, permissions=_grants(given.pop("permissions", {})), further=given)


def _grants(value: object) -> Permissions:
    """An invalid value must not pass for "no grants": that would be written back."""
    if not isinstance(value, dict):
        raise ValueError(f"permissions must be an object: {value!r}")
    for role, rights in value.items():
        if not isinstance(rights, list) or not all(isinstance(right, str) for right in rights):
            raise ValueError(f"the rights of role {role!r} must be a list of names")
    return {role: tuple(rights) for role, rights in value.items()}
