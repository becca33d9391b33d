"""A cluster through one client of the SDK, in the forms that a door needs (`pulsar.ports.ClusterPort` and
`rest.ports.LogPort`).

The door's own role is a superuser. Each producer is opened on behalf of the role of its client, so the owner of the
topic checks that role's rights, and the name belongs to it. Tokens are those of the log, checked with its key.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal
from urllib.parse import quote

from oncelog.client.client import AsyncClient, network_of
from oncelog.client.gateways import PackedProducer, create_packed_producer, topics_of
from oncelog.client.network.lookup import partitions_in
from oncelog.client.rest_calls import rest, topic_path
from oncelog.core.access import Caller, Right
from oncelog.core.errors import InvalidArgument, InvariantViolated, ProducerBusy, TopicNotFound
from oncelog.core.formats.client_token import decode_token
from oncelog.core.names import NamespaceName, TopicName, check_part
from oncelog.runtime.security import Security
from oncelog.runtime.tokens import SCHEME
from oncelog_doors.connections.ports import ProvedCaller
from oncelog_doors.core.pulsar.message_ids import Start
from oncelog_doors.core.pulsar.openings import NO_TOKEN
from oncelog_doors.core.pulsar.subscribing import Subscription
from oncelog_doors.core.shared.lookup_rights import USERS, may_create, require_creation
from oncelog_doors.core.shared.named_topics import NamedTopic
from oncelog_doors.core.shared.reading_rights import require_right
from oncelog_doors.core.shared.window_shares import WindowShares
from oncelog_doors.log_client.client_policies import PoliciesOfTopic, policies_of
from oncelog_doors.log_client.client_producer import ClientProducer
from oncelog_doors.log_client.log_consumer import LogConsumer, open_log_consumer
from oncelog_doors.log_client.log_reader import LogReader, open_log_reader
from oncelog_doors.log_client.namespace_answers import NamespaceAnswers
from oncelog_doors.log_client.namespace_grants import Grants, NamespaceGrants
from oncelog_doors.log_client.partitions import partitions_of
from oncelog_doors.log_client.rights import Rights
from oncelog_doors.log_client.stored_contents import StoredContents
from oncelog_doors.log_client.topic_entries import TopicEntries
from oncelog_doors.log_client.topic_schemas import TopicSchemas
from oncelog_doors.pulsar.ports import ConsumerCallbacks, ProducerPort

READERS_BYTES = 256 * 1024 * 1024
#: Of reading the rights of a namespace. Clients wait 30 s for a look-up, and repeat it.
_RIGHTS_TIMEOUT_MS = 10_000
#: Of a list of topics: a service reads a record for each of them.
_LIST_TIMEOUT_MS = 20_000
_CREATION_TIMEOUT_MS = 10_000


class SdkCluster:
    """client: with a token of a superuser, if the cluster wants tokens. batch_bytes_max: the owners' setting.
    readers_bytes: what all readers together may hold ready, about."""

    def __init__(
        self, client: AsyncClient, security: Security, *, batch_bytes_max: int, readers_bytes: int = READERS_BYTES
    ) -> None:
        self._client, self._security = client, security
        self._batch_bytes_max = batch_bytes_max
        self._grants = NamespaceGrants(self._ask_for_grants)
        self._windows = WindowShares(readers_bytes)
        self.schemas = TopicSchemas(client, self._grants)
        self.entries = TopicEntries(client, self._grants, batch_bytes_max=batch_bytes_max)
        self._lists = NamespaceAnswers(self._ask_for_topics, keeps=False)

    @property
    def client(self) -> AsyncClient:
        return self._client

    @property
    def windows(self) -> WindowShares:
        """Of all readers and consumers."""
        return self._windows

    def rights(self, caller: Caller, topic: TopicName) -> Rights:
        return Rights(caller, topic, self._grants)

    @property
    def authentication(self) -> bool:
        return self._security.authenticator is not None

    @property
    def batch_bytes_max(self) -> int:
        return self._batch_bytes_max

    @property
    def read_ahead_bytes(self) -> int:
        return self._windows.total_bytes

    async def caller_of(self, token: str, address: str) -> ProvedCaller:
        authenticator = self._security.authenticator
        if authenticator is None:
            raise InvariantViolated("a token was read although the cluster wants none")
        caller, expires_s = authenticator.proved(f"{SCHEME}{token}")
        ends_in_ms = None if expires_s is None else max(0, int((expires_s - time.time()) * 1000))
        return ProvedCaller(replace(caller, address=address), ends_in_ms)

    async def partitions(
        self, topic: TopicName, caller: Caller, *, may_create: bool, sees: Sequence[Right] = USERS
    ) -> int:
        """As the log does for a client of its own: any of the rights `sees` shows the topic, that to produce creates
        it."""
        creates = may_create if caller.superuser else await self._may_create(topic, caller, may_create, sees)
        lookup = network_of(self._client).lookup
        try:
            if not creates:
                return await partitions_of(lookup, topic)
            await lookup.find(topic, create=True)
        except InvalidArgument as error:
            if count := partitions_in(error):
                return count
            raise
        except TopicNotFound:
            if may_create and not creates:
                require_creation(caller, topic)
            raise
        return 0

    async def _may_create(self, topic: TopicName, caller: Caller, wanted: bool, sees: Sequence[Right]) -> bool:
        grants = await self._ask_for_grants(str(topic.namespace_name))
        return may_create(caller, grants, topic, wanted=wanted, sees=sees)

    async def rights_of(self, namespace: NamespaceName, caller: Caller) -> frozenset[Right]:
        if caller.superuser:
            return frozenset(Right)
        granted = (await self._ask_for_grants(str(namespace))).get(caller.role, ())
        return frozenset(each for each in Right if each in granted)

    async def _ask_for_grants(self, namespace: str) -> Grants:
        path = f"/admin/v2/namespaces/{namespace}/permissions"
        grants: Grants = await rest(self._client, "GET", path, timeout_ms=_RIGHTS_TIMEOUT_MS)
        return grants

    async def topics_of(
        self, namespace: NamespaceName, caller: Caller, sees: Sequence[Right] = (Right.CONSUME,)
    ) -> Sequence[NamedTopic]:
        """sees: any of these rights shows the topics."""
        if not caller.superuser:
            require_right(caller, await self._grants.of(str(namespace)), namespace, *sees)
        return await self._lists.of(str(namespace))

    async def _ask_for_topics(self, namespace: str) -> Sequence[NamedTopic]:
        found = await topics_of(self._client, namespace, timeout_ms=_LIST_TIMEOUT_MS)
        return [NamedTopic(*each) for each in found]

    async def open_producer(
        self,
        topic: TopicName,
        caller: Caller,
        *,
        name: str | None,
        token: int,
        epoch: int | None,
        wanted: Callable[[], None],
    ) -> ProducerPort:
        async def opened(on_conflict: Literal["fence", "refuse"]) -> PackedProducer:
            return await create_packed_producer(
                self._client,
                str(topic),
                producer_name=name,
                token=token if _is_ours(token) else NO_TOKEN,
                epoch=epoch,
                on_behalf_of=caller,
                on_conflict=on_conflict,
                wanted=wanted,
                create=False,
            )

        try:
            producer = await opened("refuse")
        except ProducerBusy as error:
            if not (await policies_of(self._client, topic)).new_instance_fences:
                # The SDK's own sentence names an argument that clients of Pulsar do not have.
                message = f"another instance of producer {name!r} is connected: close it, or use another producer name"
                raise ProducerBusy(message) from error
            producer = await opened("fence")
        tasks = network_of(self._client).background
        policies = PoliciesOfTopic(partial(policies_of, self._client, topic))
        return ClientProducer(producer, policies, StoredContents(self._client, str(topic), tasks), tasks)

    async def ensure_subscription(self, topic: TopicName, caller: Caller, name: str) -> None:
        creates = await self.rights(caller, topic).check(may_create=True)
        await network_of(self._client).lookup.find(topic, create=creates)
        path = f"{topic_path(topic)}/subscription/{quote(check_part(name, field='subscription'), safe='')}"
        start = {"start": {"position": "earliest"}}
        await rest(self._client, "PUT", path, start, may_exist=True, timeout_ms=_CREATION_TIMEOUT_MS)

    async def open_reader(self, topic: TopicName, caller: Caller, start: Start, *, may_create: bool) -> LogReader:
        rights = self.rights(caller, topic)
        return await open_log_reader(self._client, rights, start, self._windows, may_create=may_create)

    async def open_consumer(
        self,
        topic: TopicName,
        caller: Caller,
        name: str,
        consumer_name: str,
        subscription: Subscription,
        callbacks: ConsumerCallbacks,
        *,
        may_create: bool,
    ) -> LogConsumer:
        rights = self.rights(caller, topic)
        return await open_log_consumer(
            self._client, rights, name, consumer_name, subscription, callbacks, self._windows,
            may_create=may_create, form=self.form_of_consumer(topic, name),
        )  # fmt: skip

    def form_of_consumer(self, topic: TopicName, name: str) -> Callable[..., LogConsumer]:
        """name: of the subscription."""
        return LogConsumer


def _is_ours(token: int) -> bool:
    """Whether a log may have given this token. A client that comes from a cluster of Pulsar has a number of that one,
    and is a new instance here."""
    try:
        decode_token(token)
    except InvalidArgument:
        return False
    return True
