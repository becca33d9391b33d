"""Calls of REST about one subscription of one topic or partition."""

from collections.abc import Collection
from typing import Any
from urllib.parse import quote

from oncelog.client.client import AsyncClient
from oncelog.client.rest_calls import rest, topic_path
from oncelog.core.names import TopicName


class SubscriptionRest:
    """Of one consumer."""

    def __init__(self, client: AsyncClient, topic: TopicName, subscription: str, *, timeout_ms: int) -> None:
        """timeout_ms: of each call."""
        self._client = client
        self._path = f"{topic_path(topic)}/subscription/{quote(subscription, safe='')}"
        self._timeout_ms = timeout_ms

    async def consumers(self) -> set[str]:
        """The names of consumers that are connected, without those beyond the limit of a list. Raises
        SubscriptionNotFound, and DeadlineExceeded."""
        return {each["consumer_name"] for described in await self._described() for each in described["consumers"]}

    async def paused(self) -> bool:
        """Whether new messages are withheld because of the state of acknowledgements. Raises SubscriptionNotFound,
        Conflict while the topic has no owner, and DeadlineExceeded."""
        return any(described["is_blocked_on_ack_state_persistent"] for described in await self._described())

    async def _described(self) -> Collection[dict[str, Any]]:
        found: dict[str, dict[str, Any]] = await rest(self._client, "GET", self._path, timeout_ms=self._timeout_ms)
        return found.values()

    async def delete(self) -> None:
        """Raises Conflict while consumers are connected, SubscriptionNotFound, and DeadlineExceeded."""
        await rest(self._client, "DELETE", self._path, timeout_ms=self._timeout_ms)
