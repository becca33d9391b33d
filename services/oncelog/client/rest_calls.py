"""Calls of REST, over the gRPC port of a client's cluster."""

import json
from typing import Any
from urllib.parse import quote

from oncelog.client.client import AsyncClient, network_of
from oncelog.client.network.backoff import persist
from oncelog.client.network.problems import error_of_problem
from oncelog.core.errors import Fatal, TopicLoading
from oncelog.core.names import TopicName
from oncelog.rpc.codecs.metadata_codec import REST
from oncelog.rpc.options import AUTHORIZATION
from oncelog.wire.metadata_pb2 import RestAnswer, RestHeader, RestRequest

_TIMEOUT_MS = 30_000
_CONFLICT = 409


async def rest(
    client: AsyncClient,
    method: str,
    path: str,
    body: Any = None,
    *,
    may_exist: bool = False,
    timeout_ms: int | None = None,
    what: str = "",
) -> Any:
    """Call REST of the client's cluster, over its gRPC port. timeout_ms: until a service answers; None: no limit. what:
    the subject, for log and errors; empty: the call. Raises the error of the answer, and DeadlineExceeded."""
    request = RestRequest(
        method=method,
        target=path,
        headers=[RestHeader(name="content-type", value="application/json")],
        body=b"" if body is None else json.dumps(body).encode(),
    )
    lookup = network_of(client).lookup
    answer = await persist(
        lambda _: lookup.ask(REST, request, timeout_ms=_TIMEOUT_MS),
        timeout_ms=timeout_ms,
        what=what or f"{method} {path}",
    )
    if answer.status == _CONFLICT and may_exist:
        return None
    if answer.status >= 300:
        unknown = Fatal(f"{method} {path} was answered with {answer.status}")
        raise error_of_problem(answer.status, answer.body) or unknown
    return json.loads(answer.body) if answer.body else None


async def forward(client: AsyncClient, request: RestRequest, authorization: str | None) -> RestAnswer:
    """Send a request of another caller, once, with the header `authorization` of that caller; None: without one.
    client: without a token of its own, so nothing is done with its rights. Raises the error of a service that refuses
    the call, and a Retriable error if no service answers."""
    given = () if authorization is None else ((AUTHORIZATION, authorization),)
    return await network_of(client).lookup.ask(REST, request, timeout_ms=_TIMEOUT_MS, more_metadata=given)


async def cluster_id_of(client: AsyncClient, timeout_ms: int | None, *, where: str) -> str:
    """where: the cluster, for errors. Raises as `rest`."""
    [cluster_id] = await rest(
        client, "GET", "/admin/v2/clusters", timeout_ms=timeout_ms, what=f"the id of the cluster {where}"
    )
    return str(cluster_id)


def topic_path(topic: TopicName) -> str:
    """Of the topic, or of one partition."""
    return f"/admin/v2/persistent/{topic.tenant}/{topic.namespace}/{quote(topic.local_full, safe='')}"


async def owner_stats(
    client: AsyncClient, topic: TopicName, *, internal: bool = False, timeout_ms: int | None = None
) -> dict[str, Any]:
    """The statistics of one log, as its owner tells them; an owner is found first. internal: the internal ones. Raises
    TopicNotFound, and as `rest`."""
    lookup = network_of(client).lookup

    async def ask(_again: bool) -> dict[str, Any]:
        await lookup.find(topic, create=False)
        found = await rest(client, "GET", f"{topic_path(topic)}/{'internalStats' if internal else 'stats'}")
        if found.get("phase") != "serving":
            raise TopicLoading(f"{topic} is {found.get('phase') or 'not served yet'}")
        return dict(found)

    return await persist(ask, timeout_ms=timeout_ms, what=f"the owner of {topic}")
