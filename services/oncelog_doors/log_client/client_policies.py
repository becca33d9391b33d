"""The policies of a topic for clients of Pulsar: they are asked for only where they decide something, which is rare."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from oncelog.client.client import AsyncClient
from oncelog.client.rest_calls import rest, topic_path
from oncelog.core.errors import NotFound, OncelogError
from oncelog.core.names import TopicName
from oncelog_doors.core.pulsar.verdicts import TopicRules

_LOG = logging.getLogger(__name__)

#: How long a change of policies may take until a producer or consumer that is open follows it.
AGE_S = 10.0


class ClientPolicies(NamedTuple):
    """new_instance_fences: a new producer takes its name from one that is connected. rules: for what is sent.
    ack_undecodable: messages that a client cannot decode are acknowledged."""

    new_instance_fences: bool = False
    rules: TopicRules = TopicRules()
    ack_undecodable: bool = False


async def policies_of(client: AsyncClient, topic: TopicName) -> ClientPolicies:
    """Of a topic, or of its namespace while there is no such topic. It waits while no service answers. Raises
    OncelogError."""
    try:
        applied = await rest(client, "GET", f"{topic_path(topic)}/policies")
    except NotFound:
        applied = await rest(client, "GET", f"/admin/v2/namespaces/{topic.namespace_name}/policies")
    return _read(applied)


def _read(applied: dict[str, Any]) -> ClientPolicies:
    def is_on(name: str) -> bool:
        # A metadata service of an earlier version does not know the policy yet.
        return bool(applied.get(name, {}).get("value"))

    rules = TopicRules(
        accept_stale=is_on("pulsarAcceptStale"),
        accept_other_content=is_on("pulsarAcceptOtherContent"),
        accept_unverified=not is_on("pulsarRefuseUnverified"),
    )
    return ClientPolicies(is_on("pulsarNewInstanceFences"), rules, is_on("pulsarAckUndecodable"))


class PoliciesOfTopic:
    """For one producer or consumer: one question for all that needs an answer within some seconds."""

    def __init__(self, ask: Callable[[], Awaitable[ClientPolicies]], *, age_s: float = AGE_S) -> None:
        self._ask, self._age_s = ask, age_s
        self._known: tuple[float, ClientPolicies] | None = None
        self._asking = asyncio.Lock()

    async def get(self) -> ClientPolicies:
        """If they cannot be read, the defaults: those lose nothing."""
        async with self._asking:
            now_s = time.monotonic()
            if self._known is None or self._known[0] < now_s - self._age_s:
                try:
                    policies = await self._ask()
                except OncelogError as error:
                    _LOG.warning("policies for clients of Pulsar cannot be read, the defaults apply: %s", error)
                    policies = ClientPolicies()
                self._known = now_s, policies
            return self._known[1]
