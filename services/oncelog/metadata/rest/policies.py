"""Routes for policies: values that are set, or not, at each level. Each policy has the same three requests there."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Body, Query, Response
from pydantic import Field, StrictBool, StrictInt

from oncelog.core.access import Right
from oncelog.core.errors import NotFound
from oncelog.core.policies.ack_state_limit import TOPIC_STATE_BYTES_MAX
from oncelog.metadata.replica import Coordination
from oncelog.metadata.rest.access import requires
from oncelog.metadata.rest.conditions import IfMatch, answers_tag, show_tag, tags_of
from oncelog.metadata.rest.policy_values import (
    NUMBER_MAX,
    AppliedPolicy,
    BacklogQuotaBody,
    RetentionBody,
    quota_of,
    retention_of,
    shown_quota,
    shown_retention,
)
from oncelog.metadata.rest.values import ClusterPath, NamespacePath, TopicPath
from oncelog.metadata_store.records.policies import Effective, Policies, PolicySource, nearest
from oncelog.metadata_store.records.policy_store import CLUSTER, Scope
from oncelog.metadata_store.session.store_session import Versioned

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
_Retention = Annotated[RetentionBody, Body(description="Limits of time and size.")]
_Quota = Annotated[BacklogQuotaBody, Body(description="Limits of size and age, and what happens then.")]


def _same(value: Any) -> Any:
    return value


class _Paths(NamedTuple):
    """The last element of the path at each level; empty: the policy is not there."""

    cluster: str
    namespace: str
    topic: str


@dataclass(frozen=True, slots=True)
class _Policy:
    """One policy in the REST interface.

    name: of the field of `Policies`, and in operation ids. body: the type of the request's body. answer: the type of
    the answers. applied: that with `applied`. stored: the policy of a body; shown: the body of a policy.
    """

    name: str
    noun: str
    about: str
    body: Any
    answer: Any
    applied: Any
    paths: _Paths
    stored: Callable[[Any], object] = _same
    shown: Callable[[Any], object] = _same

    def words(self, level: str) -> str:
        return f"{level} {self.name.replace('_', ' ')} {self.noun}".rstrip()


def _everywhere(path: str) -> _Paths:
    return _Paths(path, path, path)


_POLICIES = (
    _Policy(
        "deduplication", "switch", "Whether messages are deduplicated by their sequence ids.", _Switch, bool,
        AppliedPolicy[bool], _Paths("deduplication", "deduplication", "deduplicationEnabled"),
    ),
    _Policy(
        "auto_create_topics", "switch", "Whether a topic is created on its first use.", _Switch, bool,
        AppliedPolicy[bool], _Paths("autoTopicCreation", "autoTopicCreation", ""),
    ),
    _Policy(
        "retention", "policy",
        "How long messages are kept that every subscription has acknowledged; those of a topic without subscriptions, "
        "too. For ever by default. -1: no limit; both 0: not at all. Of two limits, the first that is reached counts.",
        _Retention, RetentionBody, AppliedPolicy[RetentionBody], _everywhere("retention"),
        stored=retention_of, shown=shown_retention,
    ),
    _Policy(
        "message_ttl_s", "policy",
        "The age, in seconds, from which a message that is not acknowledged counts as acknowledged. Never by default.",
        _Seconds, int, AppliedPolicy[int], _everywhere("messageTTL"),
    ),
    _Policy(
        "backlog_quota", "policy",
        "How much of a topic a subscription may leave unacknowledged, by bytes and by age, and what happens above: "
        "publishing waits, publishing fails, or the oldest messages count as acknowledged. No limit by default.",
        _Quota, BacklogQuotaBody, AppliedPolicy[BacklogQuotaBody], _everywhere("backlogQuota"),
        stored=quota_of, shown=shown_quota,
    ),
    _Policy(
        "dispatcher_pause_on_ack_state_persistent_enabled", "switch",
        "Whether a subscription gets no new messages while its ack state is above a limit, or cannot be written "
        "(PIP-299). Off by default.",
        _Switch, bool, AppliedPolicy[bool], _everywhere("dispatcherPauseOnAckStatePersistent"),
    ),
    _Policy(
        "max_unacked_ranges_to_persist", "policy",
        "The limit of acknowledged ranges above the first unacknowledged message, for PIP-299's pause.",
        _Ranges, int, AppliedPolicy[int], _everywhere("maxUnackedRangesToPersist"),
    ),
    _Policy(
        "ack_state_bytes_max", "policy",
        "The limit of the bytes of a subscription's ack state, for PIP-299's pause.",
        _StateBytes, int, AppliedPolicy[int], _everywhere("ackStateBytesMax"),
    ),
)  # fmt: skip
_WINS = "The most specific level that sets it wins."
_PARTITIONED = "On a partitioned topic it applies to all partitions that do not set it themselves."


def routes(coordination: Coordination) -> APIRouter:
    """All policies at all levels."""
    router = APIRouter(tags=["policies"])
    for policy in _POLICIES:
        if policy.paths.cluster:
            _add_cluster(router, coordination, f"/admin/v2/clusters/{{cluster}}/{policy.paths.cluster}", policy)
        if policy.paths.namespace:
            _add_namespace(
                router, coordination, f"/admin/v2/namespaces/{{tenant}}/{{namespace}}/{policy.paths.namespace}", policy
            )
        if policy.paths.topic:
            _add_topic(
                router,
                coordination,
                f"/admin/v2/persistent/{{tenant}}/{{namespace}}/{{topic}}/{policy.paths.topic}",
                policy,
            )
    return router


def _add_cluster(router: APIRouter, coordination: Coordination, path: str, policy: _Policy) -> None:
    async def get(cluster: ClusterPath, response: Response, applied: Applied = False) -> Any:
        _require_cluster(coordination, cluster)
        stored = await coordination.policies.read(CLUSTER)
        if applied:
            return _applied(policy, getattr(nearest([(stored.value, PolicySource.CLUSTER)]), policy.name))
        return _shown(policy, response, stored)

    async def post(cluster: ClusterPath, body: Any, response: Response, if_match: IfMatch = None) -> None:
        _require_cluster(coordination, cluster)
        show_tag(response, await _change(coordination, CLUSTER, policy, body, if_match))

    async def delete(cluster: ClusterPath, response: Response, if_match: IfMatch = None) -> None:
        _require_cluster(coordination, cluster)
        show_tag(response, await _change(coordination, CLUSTER, policy, None, if_match))

    _add(router, path, "cluster", policy, get, post, delete)  # no rule: superusers only


def _add_namespace(router: APIRouter, coordination: Coordination, path: str, policy: _Policy) -> None:
    async def get(namespace: NamespacePath, response: Response, applied: Applied = False) -> Any:
        if applied:
            return _applied(policy, getattr(await coordination.policies.effective(namespace), policy.name))
        return _shown(policy, response, await coordination.policies.read(namespace))

    async def post(namespace: NamespacePath, body: Any, response: Response, if_match: IfMatch = None) -> None:
        show_tag(response, await _change(coordination, namespace, policy, body, if_match))

    async def delete(namespace: NamespacePath, response: Response, if_match: IfMatch = None) -> None:
        show_tag(response, await _change(coordination, namespace, policy, None, if_match))

    _add(router, path, "namespace", policy, get, post, delete, requires(Right.ADMIN))


def _add_topic(router: APIRouter, coordination: Coordination, path: str, policy: _Policy) -> None:
    async def get(topic: TopicPath, response: Response, applied: Applied = False) -> Any:
        topic_id = (await coordination.lookup.find(topic)).topic_id
        if applied:
            return _applied(policy, getattr(await coordination.policies.effective_of(topic, topic_id), policy.name))
        return _shown(policy, response, await coordination.policies.read(topic_id))

    async def post(topic: TopicPath, body: Any, response: Response, if_match: IfMatch = None) -> None:
        topic_id = (await coordination.lookup.find(topic)).topic_id
        show_tag(response, await _change(coordination, topic_id, policy, body, if_match))

    async def delete(topic: TopicPath, response: Response, if_match: IfMatch = None) -> None:
        topic_id = (await coordination.lookup.find(topic)).topic_id
        show_tag(response, await _change(coordination, topic_id, policy, None, if_match))

    _add(router, path, "topic", policy, get, post, delete, requires(Right.ADMIN))


def _add(
    router: APIRouter,
    path: str,
    level: str,
    policy: _Policy,
    get: Callable[..., Awaitable[Any]],
    post: Callable[..., Awaitable[None]],
    delete: Callable[..., Awaitable[None]],
    *rules: Any,
) -> None:
    subject = f"{level}_{policy.name}"
    about = f"{policy.about} {_WINS}" + (f" {_PARTITIONED}" if level == "topic" else "")

    def options(verb: str, status: int) -> dict[str, Any]:
        summary = f"{verb.capitalize()} the {policy.words(level)}"
        about = {"operation_id": f"{verb}_{subject}", "summary": summary, "status_code": status}
        return about | {"dependencies": list(rules), "responses": answers_tag(status)}

    returns = "Returns the value, or null if not set at this level; with `applied` the effective value and its source."
    answer = policy.answer | None | policy.applied
    router.get(path, **options("get", 200), description=f"{about}\n\n{returns}", response_model=answer)(get)
    # The framework reads the type of the body from here: it differs from policy to policy.
    post.__annotations__["body"] = policy.body
    router.post(path, **options("set", 204), description=about)(post)
    router.delete(path, **options("unset", 204), description=f"{about}\n\nThen the next level decides.")(delete)


def _require_cluster(coordination: Coordination, cluster: str) -> None:
    if cluster != coordination.cluster_id:
        raise NotFound(
            f"cluster {cluster} does not exist here: this is cluster {coordination.cluster_id}", field="cluster"
        )


async def _change(
    coordination: Coordination, scope: Scope, policy: _Policy, body: Any, if_match: str | None
) -> Versioned[Policies]:
    setting: dict[str, Any] = {policy.name: None if body is None else policy.stored(body)}
    return await coordination.policies.change(
        scope, lambda policies: replace(policies, **setting), tags=tags_of(if_match)
    )


def _shown(policy: _Policy, response: Response, stored: Versioned[Policies]) -> object:
    """The value set at this level; also sets the ETag."""
    show_tag(response, stored)
    value = getattr(stored.value, policy.name)
    return None if value is None else policy.shown(value)


def _applied(policy: _Policy, effective: Effective[Any]) -> AppliedPolicy[Any]:
    answer: AppliedPolicy[Any] = policy.applied(value=policy.shown(effective.value), source=effective.source.value)
    return answer
