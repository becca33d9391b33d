"""The cluster for administrators among Kafka's clients (`kafka.administration_ports.AdministrationPort`): REST of the
cluster, with the token of the client. So rights are judged, and changes are noted, as those of any other caller."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar
from urllib.parse import urlencode

from oncelog.client.network.backoff import persist
from oncelog.client.network.problems import error_of_problem
from oncelog.client.rest_calls import topic_path
from oncelog.core.errors import Conflict, Fatal, InvalidArgument, PreconditionFailed, ServiceUnavailable, TopicNotFound
from oncelog.core.names import NamespaceName, TopicName, check_partitions
from oncelog.runtime.tokens import SCHEME
from oncelog_doors.core.kafka.topic_configs import AppliedConfigs, OwnConfigs, Retention, Source
from oncelog_doors.kafka.administration_ports import ConfigChange, KnownProducer
from oncelog_doors.rest.json_calls import JsonAnswer, JsonCalls
from oncelog_doors.rest.ports import RestPort

T = TypeVar("T")
_PAGE = 1_000
#: Attempts to change configurations that others change, too.
_CHANGES_MAX = 5
_RETENTION, _COMPACT = "retention", "kafkaCompact"
_SOURCES = {
    "topic": Source.TOPIC,
    "partitioned_topic": Source.TOPIC,
    "namespace": Source.DEFAULT_OF_CLUSTER,
    "cluster": Source.DEFAULT_OF_CLUSTER,
}


class KafkaAdministration:
    """rest: without a token of its own. token: of the client."""

    def __init__(self, rest: RestPort, token: str | None) -> None:
        self._calls = JsonCalls(rest, None if token is None else f"{SCHEME}{token}")

    async def _ask(
        self, method: str, path: str, body: Any = None, *, tag: str = "", **query: str | int | None
    ) -> JsonAnswer:
        """tag: of the value that may be replaced; empty: of any. query: None: left out. Raises OncelogError."""
        given = {name: value for name, value in query.items() if value is not None}
        target = f"{path}?{urlencode(given)}" if given else path
        answer = await self._calls.ask(method, target, body, {"if-match": tag} if tag else {})
        if answer.failed:
            unknown = Fatal(f"{method} {path} was answered with {answer.status}")
            raise error_of_problem(answer.status, answer.body) or unknown
        return answer

    # --- topics -------------------------------------------------------------------------------------------------------

    async def partitions(self, topic: TopicName) -> int:
        return int((await self._ask("GET", f"{topic_path(topic)}/partitions")).value["partitions"])

    async def create(self, topic: TopicName, count: int) -> None:
        check_partitions(topic, count)
        # Once: asked for again, it might find its own topic, or that of another client.
        await self._ask("PUT", f"{topic_path(topic)}/partitions", count)

    async def create_by_use(self, topic: TopicName, count: int, timeout_ms: int) -> None:
        """Create the topic for a client that uses it, unless it exists by then. Needs the right to administer, to read
        the policy of the namespace.

        Raises TopicNotFound if the namespace forbids it, and ServiceUnavailable without an answer in that time.
        """
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._check_creation_by_use(topic)
                with suppress(Conflict):  # another client was first
                    await self.create(topic, count)
        except TimeoutError as error:
            message = f"the creation of {topic} has no answer within {timeout_ms} ms: ask again"
            raise ServiceUnavailable(message, topic=str(topic)) from error

    async def _check_creation_by_use(self, topic: TopicName) -> None:
        path = f"/admin/v2/namespaces/{topic.namespace_name}/autoTopicCreation"
        policy = (await self._ask("GET", path, applied="true")).value
        if not policy["value"]:
            message = (
                f"topic {topic} does not exist, and its {policy['source']} disables automatic topic creation: create "
                "the topic"
            )
            raise TopicNotFound(message, topic=str(topic))

    async def grow(self, topic: TopicName, count: int, timeout_ms: int) -> None:
        check_partitions(topic, count)
        await self._until(
            timeout_ms, f"the growth of {topic}", lambda _: self._ask("POST", f"{topic_path(topic)}/partitions", count)
        )

    async def delete(self, topic: TopicName, timeout_ms: int) -> None:
        async def ask(again: bool) -> None:
            try:
                await self._delete(topic)
            except TopicNotFound:
                if not again:  # an attempt without an answer may have deleted it
                    raise

        await self._until(timeout_ms, f"the deletion of {topic}", ask)

    async def _delete(self, topic: TopicName) -> None:
        try:
            await self._ask("DELETE", f"{topic_path(topic)}/partitions")
        except Conflict:
            await self._ask("DELETE", topic_path(topic))

    async def trim(self, log: TopicName, before: int | None, timeout_ms: int) -> int:
        async def ask(_again: bool) -> int:
            answer = await self._ask("POST", f"{topic_path(log)}/trim", {"before_index": before})
            return int(answer.value["first_index"])

        try:
            return await self._until(timeout_ms, f"the trim of {log}", ask)
        except TopicNotFound:
            if log.partition is None:
                raise
            # A partition that was never used ends at 0.
            if before:
                message = f"before_index is {before}, and {log} ends at 0: give 0"
                raise InvalidArgument(message, field="before_index", limit=0) from None
            return 0

    async def _until(self, timeout_ms: int, what: str, ask: Callable[[bool], Awaitable[T]]) -> T:
        return await persist(ask, timeout_ms=timeout_ms, what=what)

    # --- configurations -----------------------------------------------------------------------------------------------

    async def configs(self, topic: TopicName) -> AppliedConfigs:
        return _applied((await self._ask("GET", f"{topic_path(topic)}/policies")).value)

    async def configs_of_namespace(self, namespace: NamespaceName) -> AppliedConfigs:
        return _applied((await self._ask("GET", f"/admin/v2/namespaces/{namespace}/policies")).value)

    async def change_configs(self, topic: TopicName, change: ConfigChange) -> None:
        for attempt in range(1, _CHANGES_MAX + 1):
            try:
                await self._change(topic, change)
            except PreconditionFailed:  # another client has changed them meanwhile
                if attempt == _CHANGES_MAX:
                    raise
            else:
                return

    async def _change(self, topic: TopicName, change: ConfigChange) -> None:
        """The policies of a topic have one tag, so that what was read must still hold when it is changed."""
        place = topic_path(topic)
        retention = await self._ask("GET", f"{place}/{_RETENTION}")
        compact = await self._ask("GET", f"{place}/{_COMPACT}")
        if compact.tag != retention.tag:
            raise PreconditionFailed("the policies of the topic have changed meanwhile: ask again")
        own = OwnConfigs(None if retention.value is None else _retention(retention.value), compact.value)
        new = change(own, await self.configs(topic))
        tag = retention.tag
        # Retention first: what is shown as kept for ever must not be deleted.
        if new.retention != own.retention:
            body = None if new.retention is None else _body(new.retention)
            tag = await self._set(f"{place}/{_RETENTION}", body, tag)
        if new.compact != own.compact:
            await self._set(f"{place}/{_COMPACT}", new.compact, tag)

    async def _set(self, path: str, value: Any, tag: str) -> str:
        """The next tag. value: None: unset it."""
        return (await self._ask("DELETE" if value is None else "POST", path, value, tag=tag)).tag

    # --- what there is ------------------------------------------------------------------------------------------------

    async def sizes(self, namespace: NamespaceName, name: str | None) -> Mapping[str, int]:
        found: dict[str, int] = {}
        after: str | None = None
        while True:
            page = (await self._ask("GET", f"/admin/v2/topics/{namespace}", name=name, limit=_PAGE, after=after)).value
            found |= {each["topic"]: each["bytes"] for each in page["topics"] if each["bytes"] is not None}
            after = page["next_after"]
            if after is None:
                return found

    async def producers(self, log: TopicName) -> Sequence[KnownProducer]:
        try:
            page = (await self._ask("GET", f"{topic_path(log)}/producers", limit=_PAGE)).value
        except TopicNotFound:
            if log.partition is None:
                raise
            return ()  # a partition that was never used
        return [
            KnownProducer(
                each["name"], each["producer_id"], each["generation"], each["persisted"], each["last_activity_ms"]
            )
            for each in page["producers"]
        ]


def _applied(policies: Mapping[str, Any]) -> AppliedConfigs:
    """policies: {name: {"value", "source"}}."""
    retention = policies[_RETENTION]
    # A metadata service of an earlier version does not know the switch.
    compact = policies.get(_COMPACT, {"value": False, "source": ""})
    return AppliedConfigs(
        _retention(retention["value"]), _source(retention["source"]), compact["value"], _source(compact["source"])
    )


def _source(name: str) -> Source:
    return _SOURCES.get(name, Source.DEFAULT)


def _retention(value: Mapping[str, int]) -> Retention:
    return Retention(value["retentionTimeInMinutes"], value["retentionSizeInMB"])


def _body(retention: Retention) -> dict[str, int]:
    return {"retentionTimeInMinutes": retention.minutes, "retentionSizeInMB": retention.mib}
