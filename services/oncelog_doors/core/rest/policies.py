"""Policies: Pulsar's bodies, in terms of this cluster's REST, and back.

Names and units are the same, except for these:
- Backlog quota: Pulsar has one for each type, size and age, each with its own action. Here it is one policy with both
  limits and one action. So a type that is set keeps the limit of the other one, and must have its action.
- Automatic creation of topics, which here makes topics without partitions only.
- Rights: `admin` is none of Pulsar's. It is not shown, and a grant of others leaves it.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from oncelog_doors.core.rest.fields import Field, Ignored, check_kind, read_fields, shown, texts
from oncelog_doors.core.rest.names import CLUSTERS
from oncelog_doors.core.rest.refusals import Refused, refused_field

_NO_LIMIT = -1
_ACTIONS = ("producer_request_hold", "producer_exception", "consumer_backlog_eviction")
_ADMIN = "admin"
#: Pulsar's actions that are rights here.
_RIGHTS = ("produce", "consume")
_RETENTION = ("retentionTimeInMinutes", "retentionSizeInMB")
#: Fields of a new namespace, which `pulsar-admin` sends with these values.
_EMPTY = Ignored(({}, []))
_NAMESPACE_FIELDS: dict[str, Field] = {
    "auth_policies": Ignored(
        ({}, {"namespace_auth": {}, "destination_auth": {}, "subscription_auth_roles": {}}),
        "grant permissions after the creation",
    ),
    "bundles": dict,
    "replication_clusters": list,
    "allowed_clusters": list,
    "backlog_quota_map": _EMPTY,
    "clusterDispatchRate": _EMPTY,
    "topicDispatchRate": _EMPTY,
    "subscriptionDispatchRate": _EMPTY,
    "replicatorDispatchRate": _EMPTY,
    "clusterSubscribeRate": _EMPTY,
    "publishMaxMessageRate": _EMPTY,
    "latency_stats_sample_rate": _EMPTY,
    "deduplicationEnabled": bool,
    "autoTopicCreationOverride": dict,
    "deleted": Ignored((False,)),
    "encryption_required": Ignored((False,)),
    "subscription_auth_mode": Ignored(("None",)),
    "offload_threshold": Ignored((-1,)),
    "offload_threshold_in_seconds": Ignored((-1,)),
    "schema_compatibility_strategy": Ignored(("UNDEFINED", "ALWAYS_COMPATIBLE")),
    "schema_validation_enforced": Ignored((False,)),
    "subscription_types_enabled": _EMPTY,
    "properties": _EMPTY,
    "migrated": Ignored((False,)),
}

#: A namespace is one piece here.
BUNDLES: Mapping[str, Any] = {"boundaries": ["0x00000000", "0xffffffff"], "numBundles": 1}
BUNDLE_RANGE = "0x00000000_0xffffffff"


class QuotaType(StrEnum):
    """Pulsar's types of backlog quotas."""

    SIZE = "destination_storage"
    AGE = "message_age"

    @property
    def field(self) -> str:
        """Of the limit."""
        return "limitSize" if self is QuotaType.SIZE else "limitTime"

    @property
    def other(self) -> "QuotaType":
        return QuotaType.AGE if self is QuotaType.SIZE else QuotaType.SIZE


def quota_type(text: str | None) -> QuotaType:
    """By default the size, as in Pulsar. Raises Refused."""
    try:
        return QuotaType(text or QuotaType.SIZE)
    except ValueError:
        what = f"{shown(text)} is neither {QuotaType.SIZE} nor {QuotaType.AGE}"
        raise refused_field("backlogQuotaType", what) from None


def retention_of(body: Any) -> dict[str, Any]:
    """Raises Refused."""
    return read_fields(body, dict.fromkeys(_RETENTION, int), required=_RETENTION)


def quota_with(present: Mapping[str, Any] | None, kind: QuotaType, body: Any) -> dict[str, Any]:
    """The policy after a quota of this type was set. present: the policy at this level; None: it is not set. Raises
    Refused, also if the limit of the other type has another action."""
    given = read_fields(body, {"limit": int, "limitSize": int, "limitTime": int, "policy": str}, required=("policy",))
    action = given["policy"]
    if action not in _ACTIONS:
        raise refused_field("policy", f"{shown(action)} is none of {', '.join(_ACTIONS)}")
    limit = given.get(kind.field, given.get("limit", _NO_LIMIT) if kind is QuotaType.SIZE else _NO_LIMIT)
    kept = _NO_LIMIT if present is None else present[kind.other.field]
    if present is not None and kept != _NO_LIMIT and present["policy"] != action:
        raise Refused(
            409,
            f"policy: the quota of type {kind.other} has the action {present['policy']}, and here both types have the "
            "same one: remove that quota first, or use its action",
        )
    return {kind.field: limit, kind.other.field: kept, "policy": action}


def quota_without(present: Mapping[str, Any] | None, kind: QuotaType) -> dict[str, Any] | None:
    """The policy after the quota of this type was removed; None: there is none."""
    if present is None or present[kind.other.field] == _NO_LIMIT:
        return None
    return dict(present) | {kind.field: _NO_LIMIT}


def quota_map(present: Mapping[str, Any] | None) -> dict[str, dict[str, Any]]:
    """{type: quota}"""
    if present is None:
        return {}
    return {
        kind.value: {
            "limit": present["limitSize"] if kind is QuotaType.SIZE else _NO_LIMIT,
            "limitSize": _NO_LIMIT,
            "limitTime": _NO_LIMIT,
            kind.field: present[kind.field],
            "policy": present["policy"],
        }
        for kind in QuotaType
        if present[kind.field] != _NO_LIMIT
    }


def creation_of(body: Any) -> bool:
    """Whether topics are created. Raises Refused for partitioned topics."""
    instead = "topics are created without partitions; create partitioned topics by name"
    given = read_fields(
        body,
        {
            "allowAutoTopicCreation": bool,
            "topicType": Ignored(("non-partitioned",), instead),
            "defaultNumPartitions": Ignored((0,), instead),
        },
        required=("allowAutoTopicCreation",),
    )
    return bool(given["allowAutoTopicCreation"])


def shown_creation(value: bool) -> dict[str, Any]:
    return {"allowAutoTopicCreation": value, "topicType": "non-partitioned"}


def rights_with(present: list[str] | None, body: Any) -> list[str]:
    """The rights of a role after a grant. Raises Refused."""
    actions = texts("actions", body)
    for action in actions:
        if action not in _RIGHTS:
            raise refused_field("actions", f"{shown(action)} is not offered here: use {' and '.join(_RIGHTS)}")
    if not actions:
        raise refused_field("actions", "name at least one")
    return [*([_ADMIN] if present and _ADMIN in present else []), *dict.fromkeys(actions)]


def shown_rights(permissions: Mapping[str, list[str]]) -> dict[str, list[str]]:
    return {role: [right for right in rights if right != _ADMIN] for role, rights in permissions.items()}


def new_namespace(body: Any, clusters: tuple[str, ...]) -> dict[str, Any]:
    """The body of a new namespace. clusters: those that it may name. Raises Refused."""
    given = {} if body is None else read_fields(body, _NAMESPACE_FIELDS)
    for name in ("replication_clusters", "allowed_clusters"):
        check_clusters(name, given.get(name, []), clusters)
    chosen: dict[str, Any] = {}
    if "deduplicationEnabled" in given:
        chosen["deduplication"] = given["deduplicationEnabled"]
    if "autoTopicCreationOverride" in given:
        chosen["auto_create_topics"] = creation_of(given["autoTopicCreationOverride"])
    return chosen


def check_clusters(name: str, value: Any, clusters: tuple[str, ...]) -> None:
    """Raises Refused: nothing is replicated to another cluster."""
    for each in texts(name, value):
        if each not in clusters:
            what = f"there is no cluster {shown(each)}: this one is called {clusters[0]}"
            raise refused_field(name, what)


def check_tenant(body: Any, clusters: tuple[str, ...]) -> None:
    """Of a tenant, here only the name is stored. Raises Refused for what would have an effect in Pulsar."""
    if body is None:
        return
    given = read_fields(body, {"adminRoles": list, "allowedClusters": list})
    roles = texts("adminRoles", given.get("adminRoles", []))
    # The tool sends one empty text for an empty option.
    if any(roles):
        raise refused_field(
            "adminRoles",
            "tenants have no administrators here: grant rights in namespaces, or make the role a superuser",
        )
    check_clusters("allowedClusters", [each for each in given.get("allowedClusters", []) if each != ""], clusters)


def shown_namespace(policies: Mapping[str, Mapping[str, Any]], permissions: Mapping[str, list[str]]) -> dict[str, Any]:
    """Pulsar's `Policies` of a namespace, from the values that are set on it: {name: {"value", "source"}}."""
    own = {name: each["value"] for name, each in policies.items() if each["source"] == "namespace"}
    shown_policies: dict[str, Any] = {
        "auth_policies": {
            "namespace_auth": shown_rights(permissions),
            "destination_auth": {},
            "subscription_auth_roles": {},
        },
        "replication_clusters": list(CLUSTERS),
        "bundles": BUNDLES,
        "backlog_quota_map": quota_map(own.get("backlog_quota")),
        "deleted": False,
        "encryption_required": False,
        "subscription_auth_mode": "None",
        "schema_compatibility_strategy": "ALWAYS_COMPATIBLE",
        "schema_validation_enforced": False,
        "properties": {},
    }
    if "deduplication" in own:
        shown_policies["deduplicationEnabled"] = own["deduplication"]
    if "auto_create_topics" in own:
        shown_policies["autoTopicCreationOverride"] = shown_creation(own["auto_create_topics"])
    if "retention" in own:
        shown_policies["retention_policies"] = own["retention"]
    if "message_ttl_s" in own:
        shown_policies["message_ttl_in_seconds"] = own["message_ttl_s"]
    if "dispatcher_pause_on_ack_state_persistent_enabled" in own:
        enabled = own["dispatcher_pause_on_ack_state_persistent_enabled"]
        shown_policies["dispatcherPauseOnAckStatePersistentEnabled"] = enabled
    return shown_policies


def check_count(body: Any) -> int:
    """The number of partitions, alone or with metadata. Raises Refused."""
    if isinstance(body, dict):
        given = read_fields(
            body,
            {
                "partitions": int,
                "deleted": Ignored((False,)),
                "properties": Ignored(({},), "topics have no properties"),
            },
            required=("partitions",),
        )
        body = given["partitions"]
    check_kind("partitions", body, int)
    count: int = body
    return count
