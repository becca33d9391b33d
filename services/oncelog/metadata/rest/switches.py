"""Routes for switches: policies that are on, off, or not set. The same three requests at each level."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Body, Query, Response
from pydantic import StrictBool

from oncelog.core.access import Right
from oncelog.core.errors import NotFound
from oncelog.metadata.coordination.coordination import Coordination
from oncelog.metadata.rest.access import requires
from oncelog.metadata.rest.conditions import IfMatch, answers_tag, show_tag, tags_of
from oncelog.metadata.rest.values import AppliedSwitch, ClusterPath, NamespacePath, TopicPath
from oncelog.stores.policy_store import CLUSTER, Effective, Policies, PolicySource, Scope, nearest
from oncelog.stores.store_session import Versioned

Applied = Annotated[bool, Query(description="true: return the effective value and the level that it comes from.")]
Switch = Annotated[StrictBool, Body(description="true: on, false: off.")]
SwitchAnswer = bool | None | AppliedSwitch

_DEDUPLICATION = "Whether messages are deduplicated by their sequence ids. The most specific level that sets it wins."
_PARTITIONED = "On a partitioned topic it applies to all partitions that do not set it themselves."
_AUTO_CREATION = "Whether a topic is created on its first use. The most specific level that sets it wins."


def routes(coordination: Coordination) -> APIRouter:
    """All switches at all levels."""
    router = APIRouter(tags=["policies"])
    cluster = "/admin/v2/clusters/{cluster}"
    namespace = "/admin/v2/namespaces/{tenant}/{namespace}"
    topic = "/admin/v2/persistent/{tenant}/{namespace}/{topic}"
    _add_cluster(router, coordination, f"{cluster}/deduplication", "deduplication", _DEDUPLICATION)
    _add_cluster(router, coordination, f"{cluster}/autoTopicCreation", "auto_create_topics", _AUTO_CREATION)
    _add_namespace(router, coordination, f"{namespace}/deduplication", "deduplication", _DEDUPLICATION)
    _add_namespace(router, coordination, f"{namespace}/autoTopicCreation", "auto_create_topics", _AUTO_CREATION)
    _add_topic(
        router, coordination, f"{topic}/deduplicationEnabled", "deduplication", f"{_DEDUPLICATION} {_PARTITIONED}"
    )
    return router


def _add_cluster(router: APIRouter, coordination: Coordination, path: str, name: str, about: str) -> None:
    async def get(cluster: ClusterPath, response: Response, applied: Applied = False) -> SwitchAnswer:
        _require_cluster(coordination, cluster)
        stored = await coordination.policies.read(CLUSTER)
        if applied:
            return _applied(getattr(nearest([(stored.value, PolicySource.CLUSTER)]), name))
        return _shown(response, stored, name)

    async def post(cluster: ClusterPath, enabled: Switch, response: Response, if_match: IfMatch = None) -> None:
        _require_cluster(coordination, cluster)
        show_tag(response, await _change(coordination, CLUSTER, name, enabled, if_match))

    async def delete(cluster: ClusterPath, response: Response, if_match: IfMatch = None) -> None:
        _require_cluster(coordination, cluster)
        show_tag(response, await _change(coordination, CLUSTER, name, None, if_match))

    _add(router, path, f"cluster_{name}", about, get, post, delete)  # no rule: superusers only


def _add_namespace(router: APIRouter, coordination: Coordination, path: str, name: str, about: str) -> None:
    async def get(namespace: NamespacePath, response: Response, applied: Applied = False) -> SwitchAnswer:
        if applied:
            return _applied(getattr(await coordination.policies.effective(namespace), name))
        return _shown(response, await coordination.policies.read(namespace), name)

    async def post(namespace: NamespacePath, enabled: Switch, response: Response, if_match: IfMatch = None) -> None:
        show_tag(response, await _change(coordination, namespace, name, enabled, if_match))

    async def delete(namespace: NamespacePath, response: Response, if_match: IfMatch = None) -> None:
        show_tag(response, await _change(coordination, namespace, name, None, if_match))

    _add(router, path, f"namespace_{name}", about, get, post, delete, requires(Right.ADMIN))


def _add_topic(router: APIRouter, coordination: Coordination, path: str, name: str, about: str) -> None:
    async def get(topic: TopicPath, response: Response, applied: Applied = False) -> SwitchAnswer:
        topic_id = (await coordination.lookup.find(topic)).topic_id
        if applied:
            return _applied(getattr(await coordination.policies.effective_of(topic, topic_id), name))
        return _shown(response, await coordination.policies.read(topic_id), name)

    async def post(topic: TopicPath, enabled: Switch, response: Response, if_match: IfMatch = None) -> None:
        topic_id = (await coordination.lookup.find(topic)).topic_id
        show_tag(response, await _change(coordination, topic_id, name, enabled, if_match))

    async def delete(topic: TopicPath, response: Response, if_match: IfMatch = None) -> None:
        topic_id = (await coordination.lookup.find(topic)).topic_id
        show_tag(response, await _change(coordination, topic_id, name, None, if_match))

    _add(router, path, f"topic_{name}", about, get, post, delete, requires(Right.ADMIN))


def _add(
    router: APIRouter,
    path: str,
    subject: str,
    about: str,
    get: Callable[..., Awaitable[SwitchAnswer]],
    post: Callable[..., Awaitable[None]],
    delete: Callable[..., Awaitable[None]],
    *rules: Any,
) -> None:
    words = subject.replace("_", " ")

    def options(verb: str, status: int) -> dict[str, Any]:
        summary = f"{verb.capitalize()} the {words} switch"
        about = {"operation_id": f"{verb}_{subject}", "summary": summary, "status_code": status}
        return about | {"dependencies": list(rules), "responses": answers_tag(status)}

    returns = (
        "Returns true, false, or null if not set at this level; with `applied` the effective value and its source."
    )
    description = f"{about}\n\n{returns}"
    router.get(path, **options("get", 200), description=description, response_model=SwitchAnswer)(get)
    router.post(path, **options("set", 204), description=f"{about}\n\nThe body is `true` or `false`.")(post)
    unset = f"{about}\n\nThen the next level decides."
    router.delete(path, **options("unset", 204), description=unset)(delete)


def _require_cluster(coordination: Coordination, cluster: str) -> None:
    if cluster != coordination.cluster_id:
        raise NotFound(
            f"cluster {cluster} does not exist here: this is cluster {coordination.cluster_id}", field="cluster"
        )


async def _change(
    coordination: Coordination, scope: Scope, name: str, value: bool | None, if_match: str | None
) -> Versioned[Policies]:
    setting: dict[str, Any] = {name: value}
    return await coordination.policies.change(
        scope, lambda policies: replace(policies, **setting), tags=tags_of(if_match)
    )


def _shown(response: Response, stored: Versioned[Policies], name: str) -> bool | None:
    """The value set at this level; also sets the ETag."""
    show_tag(response, stored)
    value: bool | None = getattr(stored.value, name)
    return value


def _applied(effective: Effective[bool]) -> AppliedSwitch:
    return AppliedSwitch(value=effective.value, source=effective.source.value)
