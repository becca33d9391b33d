"""Calls of REST about one subscription of one topic or partition."""

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
        found = await rest(self._client, "GET", self._path, timeout_ms=self._timeout_ms)
        return {each["consumer_name"] for described in found.values() for each in described["consumers"]}

    async def delete(self) -> None:
        """Raises Conflict while consumers are connected, SubscriptionNotFound, and DeadlineExceeded."""
        await rest(self._client, "DELETE", self._path, timeout_ms=self._timeout_ms)
