"""Routes for policies: values that are set, or not, at each level. Each policy has the same three requests there."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Body, Depends, Query, Response
from pydantic import AfterValidator, Field, StrictBool, StrictInt

from oncelog.core.access import Right
from oncelog.core.errors import NotFound
from oncelog.core.names import TopicName
from oncelog.core.policies.ack_state_limit import TOPIC_STATE_BYTES_MAX
from oncelog.core.policies.producer_caps import NAMESPACE_PRODUCERS_MAX, TOPIC_PRODUCERS_MAX
from oncelog.core.policies.producer_lifetimes import LEASE_MS_MAX, LEASE_MS_MIN, POLICY_MS_MIN
from oncelog.metadata.replica import Coordination
from oncelog.metadata.rest.access import requires
from oncelog.metadata.rest.conditions import IfMatch, answers_tag, show_tag, tags_of
from oncelog.metadata.rest.policy_values import (
    NUMBER_MAX,
    AppliedPolicy,
    BacklogQuotaBody,
    RetentionBody,
    lease_lifetime,
    name_lifetime,
    quota_of,
    retention_of,
    shown_quota,
    shown_retention,
)
from oncelog.metadata.rest.routers import new_router
from oncelog.metadata.rest.values import ClusterPath, NamespacePath, TopicPath
from oncelog.metadata_store.records.policies import EffectivePolicies, PolicySource, nearest
from oncelog.metadata_store.records.policy_store import CLUSTER, Scope

Applied = Annotated[bool, Query(description="true: return the effective value and the level that it comes from.")]
_Switch = Annotated[StrictBool, Body(description="true: on, false: off.")]
_Seconds = Annotated[
    StrictInt, Field(ge=0, le=NUMBER_MAX), Body(description="Seconds after which a message expires; 0: never.")
]
_ZERO = "0: nothing new is delivered while any message is acknowledged out of order."
_Ranges = Annotated[
    StrictInt, Field(ge=0, le=NUMBER_MAX), Body(description=f"Acknowledged ranges; 200000 by default. {_ZERO}")
]
_StateBytes = Annotated[
    StrictInt,
    Field(ge=0, le=TOPIC_STATE_BYTES_MAX),
    Body(description=f"Bytes, at most 64 MiB, the hard limit of a topic; 4 MiB by default. {_ZERO}"),
]
_NameLifetime = Annotated[
    StrictInt,
    Field(ge=0, le=NUMBER_MAX),
    AfterValidator(name_lifetime),
    Body(description=f"Seconds, at least {POLICY_MS_MIN // 1000}; 0: for ever."),
]
_LeaseLifetime = Annotated[
    StrictInt,
    Field(json_schema_extra={"minimum": LEASE_MS_MIN // 1000, "maximum": LEASE_MS_MAX // 1000}),
    AfterValidator(lease_lifetime),
    Body(description=f"Seconds, {LEASE_MS_MIN // 1000} to {LEASE_MS_MAX // 1000}."),
]
_Producers = Annotated[
    StrictInt,
    Field(ge=0, le=NUMBER_MAX),
    Body(
        description=f"Producers; by default {TOPIC_PRODUCERS_MAX} of a topic, {NAMESPACE_PRODUCERS_MAX} of a "
        "namespace; 0: no cap."
    ),
]
_Retention = Annotated[RetentionBody, Body(description="Limits of time and size.")]
_Quota = Annotated[BacklogQuotaBody, Body(description="Limits of size and age, and what happens then.")]

_AT_CAP = "At the cap no new producer is opened (`limit_reached`); known ones go on, and none is forgotten."
_FORGOTTEN = (
    "Messages that are sent again by a forgotten producer are stored again. A shorter time counts from the change on, "
    "for idle producers, too."
)


def _same(value: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True)
class _Policy:
    """One policy in the REST interface.

    name: of the field of `Policies`, and in operation ids. body: the type of the request's body. answer: the type of
    the answers. applied: that with `applied`. path: its last element; topic_path: that for a topic, empty: not there.
    stored: the policy of a body; shown: the body of a policy.
    """

    name: str
    noun: str
    about: str
    body: Any
    answer: Any
    applied: Any
    path: str
    topic_path: str
    stored: Callable[[Any], object] = _same
    shown: Callable[[Any], object] = _same

    def path_at(self, level: str) -> str:
        """The last element of its path at this level; empty: it is not there."""
        return self.topic_path if level == "topic" else self.path

    def words(self, level: str) -> str:
        return f"{level} {self.name.replace('_', ' ')} {self.noun}".rstrip()


def _door_switch(name: str, path: str, about: str) -> _Policy:
    """What a door does for its clients."""
    return _Policy(name, "switch", f"{about} Off by default.", _Switch, bool, AppliedPolicy[bool], path, path)


_POLICIES = (
    _Policy(
        "deduplication", "switch", "Whether messages are deduplicated by their sequence ids.", _Switch, bool,
        AppliedPolicy[bool], "deduplication", "deduplicationEnabled",
    ),
    _Policy(
        "auto_create_topics", "switch", "Whether a topic is created on its first use.", _Switch, bool,
        AppliedPolicy[bool], "autoTopicCreation", "",
    ),
    _Policy(
        "retention", "policy",
        "How long messages are kept that every subscription has acknowledged; those of a topic without subscriptions, "
        "too. For ever by default. -1: no limit; both 0: not at all. Of two limits, the first that is reached counts.",
        _Retention, RetentionBody, AppliedPolicy[RetentionBody], "retention", "retention",
        stored=retention_of, shown=shown_retention,
    ),
    _Policy(
        "message_ttl_s", "policy",
        "The age, in seconds, from which a message that is not acknowledged counts as acknowledged. Never by default.",
        _Seconds, int, AppliedPolicy[int], "messageTTL", "messageTTL",
    ),
    _Policy(
        "backlog_quota", "policy",
        "How much of a topic a subscription may leave unacknowledged, by bytes and by age, and what happens above: "
        "publishing waits, publishing fails, or the oldest messages count as acknowledged. No limit by default.",
        _Quota, BacklogQuotaBody, AppliedPolicy[BacklogQuotaBody], "backlogQuota", "backlogQuota",
        stored=quota_of, shown=shown_quota,
    ),
    _Policy(
        "dispatcher_pause_on_ack_state_persistent_enabled", "switch",
        "Whether a subscription gets no new messages while its ack state is above a limit, or cannot be written "
        "(PIP-299). Off by default.",
        _Switch, bool, AppliedPolicy[bool], "dispatcherPauseOnAckStatePersistent",
        "dispatcherPauseOnAckStatePersistent",
    ),
    _Policy(
        "max_unacked_ranges_to_persist", "policy",
        "The limit of acknowledged ranges above the first unacknowledged message, for PIP-299's pause.",
        _Ranges, int, AppliedPolicy[int], "maxUnackedRangesToPersist", "maxUnackedRangesToPersist",
    ),
    _Policy(
        "ack_state_bytes_max", "policy",
        "The limit of the bytes of a subscription's ack state, for PIP-299's pause.",
        _StateBytes, int, AppliedPolicy[int], "ackStateBytesMax", "ackStateBytesMax",
    ),
    _Policy(
        "assigned_producer_expiry_s", "policy",
        "The time after which a producer is forgotten whose name was assigned and that does nothing: no message, no "
        f"connection. 7 days by default. {_FORGOTTEN}",
        _NameLifetime, int, AppliedPolicy[int], "assignedProducerExpiry", "assignedProducerExpiry",
    ),
    _Policy(
        "chosen_producer_expiry_s", "policy",
        f"The same for producers whose names an application has chosen. Never by default. {_FORGOTTEN}",
        _NameLifetime, int, AppliedPolicy[int], "chosenProducerExpiry", "chosenProducerExpiry",
    ),
    _Policy(
        "producer_lease_expiry_s", "policy",
        "The time after which a leased producer id expires, if its lease states none. 7 days by default. Leases that "
        "there are keep what they have.",
        _LeaseLifetime, int, AppliedPolicy[int], "producerLeaseExpiry", "producerLeaseExpiry",
    ),
    _Policy(
        "max_known_producers_per_topic", "policy",
        f"How many producers a topic remembers, connected or not; of a partitioned topic, each partition. {_AT_CAP}",
        _Producers, int, AppliedPolicy[int], "maxKnownProducersPerTopic", "maxKnownProducersPerTopic",
    ),
    _Policy(
        "max_known_producers_per_namespace", "policy",
        "How many producers the topics of a namespace remember together, of those that one topic owner serves. "
        f"{_AT_CAP}",
        _Producers, int, AppliedPolicy[int], "maxKnownProducersPerNamespace", "",
    ),
    _door_switch(
        "pulsar_new_instance_fences", "pulsarNewInstanceFences",
        "Whether a new producer of a client of Pulsar takes its name from another one that is connected; else it is "
        "refused as busy.",
    ),
    _door_switch(
        "pulsar_accept_stale", "pulsarAcceptStale",
        "Whether a message of a client of Pulsar with a sequence id that was never stored, below ids that were, is "
        "confirmed and not stored, as in Pulsar; else it is refused.",
    ),
    _door_switch(
        "pulsar_accept_other_content", "pulsarAcceptOtherContent",
        "Whether another message of a client of Pulsar under an id that is stored is confirmed and not stored, as in "
        "Pulsar; else it is refused.",
    ),
    _door_switch(
        "pulsar_refuse_unverified", "pulsarRefuseUnverified",
        "Whether a message of a client of Pulsar is refused whose id is older than all ids that the log remembers of "
        "its producer; else it is confirmed and not stored, as in Pulsar.",
    ),
    _door_switch(
        "pulsar_ack_undecodable", "pulsarAckUndecodable",
        "Whether a message that a client of Pulsar cannot decode is acknowledged, as in Pulsar; else it is delivered "
        "again after a minute.",
    ),
    _door_switch(
        "kafka_compact", "kafkaCompact",
        "Whether clients of Kafka are shown that a topic is compacted (cleanup.policy=compact). Nothing is compacted, "
        "and nothing deleted by it.",
    ),
)  # fmt: skip
_WINS = "The most specific level that sets it wins."
_PARTITIONED = "On a partitioned topic it applies to all partitions that do not set it themselves."


class _Level(NamedTuple):
    """One level, as a request names it. effective: reads the policies that hold there. topic: whose policies they are:
    they are stored under its id, so they are of use only with its name, which nobody noted if it was created by use."""

    scope: Scope
    effective: Callable[[], Awaitable[EffectivePolicies]]
    topic: TopicName | None = None


def routes(coordination: Coordination) -> APIRouter:
    """All policies at all levels."""
    router = new_router(tags=["policies"])

    async def cluster_level(cluster: ClusterPath) -> _Level:
        if cluster != coordination.cluster_id:
            message = f"cluster {cluster} does not exist here: this is cluster {coordination.cluster_id}"
            raise NotFound(message, field="cluster")

        async def effective() -> EffectivePolicies:
            return nearest([((await coordination.policies.read(CLUSTER)).value, PolicySource.CLUSTER)])

        return _Level(CLUSTER, effective)

    async def namespace_level(namespace: NamespacePath) -> _Level:
        return _Level(namespace, lambda: coordination.policies.effective(namespace))

    async def topic_level(topic: TopicPath) -> _Level:
        topic_id = (await coordination.lookup.find(topic)).topic_id
        return _Level(topic_id, lambda: coordination.policies.effective_of(topic, topic_id), topic)

    admins = requires(Right.ADMIN)
    # no rule for the cluster: superusers only
    levels = (
        ("clusters/{cluster}", "cluster", cluster_level, ()),
        ("namespaces/{tenant}/{namespace}", "namespace", namespace_level, (admins,)),
        ("persistent/{tenant}/{namespace}/{topic}", "topic", topic_level, (admins,)),
    )
    for place, level, find, rules in levels:
        for policy in _POLICIES:
            if policy.path_at(level):
                _add(router, coordination, place, level, policy, find, *rules)
        _add_all(router, place, level, find, *rules)
    return router


def _add_all(router: APIRouter, place: str, level: str, find: Callable[..., Awaitable[_Level]], *rules: Any) -> None:
    async def get(at: _Level = Depends(find)) -> dict[str, AppliedPolicy[Any]]:
        effective = await at.effective()
        applied = [(policy, getattr(effective, policy.name)) for policy in _POLICIES if policy.path_at(level)]
        return {
            policy.path_at(level): AppliedPolicy[Any](value=policy.shown(found.value), source=found.source.value)
            for policy, found in applied
        }

    about = (
        f"Each policy that a {level} can set, by the last part of its path: the value that applies, and the level that "
        "it comes from."
    )
    summary = f"Show the policies that apply to a {level}"
    options: dict[str, Any] = {"summary": summary, "description": about, "dependencies": list(rules)}
    router.get(f"/admin/v2/{place}/policies", operation_id=f"get_{level}_policies", **options)(get)


def _add(
    router: APIRouter,
    coordination: Coordination,
    place: str,
    level: str,
    policy: _Policy,
    find: Callable[..., Awaitable[_Level]],
    *rules: Any,
) -> None:
    subject = f"{level}_{policy.name}"
    about = f"{policy.about} {_WINS}" + (f" {_PARTITIONED}" if level == "topic" else "")
    path = f"/admin/v2/{place}/{policy.path_at(level)}"

    def options(verb: str, status: int) -> dict[str, Any]:
        summary = f"{verb.capitalize()} the {policy.words(level)}"
        about = {"operation_id": f"{verb}_{subject}", "summary": summary, "status_code": status}
        return about | {"dependencies": list(rules), "responses": answers_tag(status)}

    async def get(response: Response, at: _Level = Depends(find), applied: Applied = False) -> Any:
        if applied:
            effective = getattr(await at.effective(), policy.name)
            return policy.applied(value=policy.shown(effective.value), source=effective.source.value)
        stored = await coordination.policies.read(at.scope)
        show_tag(response, stored)
        value = getattr(stored.value, policy.name)
        return None if value is None else policy.shown(value)

    async def change(response: Response, at: _Level, value: object, if_match: str | None) -> None:
        setting: dict[str, Any] = {policy.name: value}
        if at.topic is not None:
            await coordination.topics.note(at.topic)
        changed = await coordination.policies.change(
            at.scope, lambda present: replace(present, **setting), tags=tags_of(if_match)
        )
        show_tag(response, changed)

    async def post(response: Response, body: Any, at: _Level = Depends(find), if_match: IfMatch = None) -> None:
        await change(response, at, policy.stored(body), if_match)

    async def delete(response: Response, at: _Level = Depends(find), if_match: IfMatch = None) -> None:
        await change(response, at, None, if_match)

    returns = "Returns the value, or null if not set at this level; with `applied` the effective value and its source."
    answer = policy.answer | None | policy.applied
    router.get(path, **options("get", 200), description=f"{about}\n\n{returns}", response_model=answer)(get)
    # The framework reads the type of the body from here: it differs from policy to policy.
    post.__annotations__["body"] = policy.body
    router.post(path, **options("set", 204), description=about)(post)
    router.delete(path, **options("unset", 204), description=f"{about}\n\nThen the next level decides.")(delete)
