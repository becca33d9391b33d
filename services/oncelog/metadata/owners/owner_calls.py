"""Unary calls to topic owners: assignments for owners without a stream here, unloads, truncations, topic
states."""

import asyncio
from collections.abc import Sequence

from oncelog.core.errors import InvariantViolated, OncelogError
from oncelog.core.ids import OwnerEpoch, TopicId
from oncelog.metadata.owners.owners import address_of
from oncelog.metadata_store.records.registry import LiveOwner
from oncelog.rpc.channel import Channel
from oncelog.rpc.channels import Channels
from oncelog.rpc.codecs.owner_codec import ASSIGN, TOPIC_STATES, TRIM, TRUNCATE, UNLOAD
from oncelog.rpc.methods import AnswerT, ReceivedAnswerT, ReceivedRequestT, RequestT, UnaryMethod
from oncelog.runtime.credentials import PLAIN, Credentials
from oncelog.wire import owner_pb2 as pb
from oncelog.wire import truncation_pb2

ASSIGN_TIMEOUT_MS = 2_000
STATES_TIMEOUT_MS = 3_000
#: The owner closes the topic's ledger first.
UNLOAD_TIMEOUT_MS = 15_000
#: The owner answers after 20 s in any case.
TRUNCATE_TIMEOUT_MS = 25_000


class OwnerCalls:
    """Keeps one channel to each owner that has a session."""

    def __init__(self, credentials: Credentials = PLAIN) -> None:
        self._channels = Channels(credentials)

    async def assign(self, owner: LiveOwner, topic_id: TopicId, owner_epoch: OwnerEpoch) -> None:
        """Assign a topic whose record names this owner. Raises NotOwner, or a retriable error if it does not answer."""
        request = pb.AssignRequest(target=owner.incarnation, topic_id=topic_id, owner_epoch=owner_epoch)
        await self._channel(owner).call(ASSIGN, request, timeout_ms=ASSIGN_TIMEOUT_MS)

    async def unload(self, owner: LiveOwner, topic_id: TopicId) -> None:
        """Make the owner close the topic. Raises NotOwner, or a retriable error if there is no answer."""
        request = pb.UnloadRequest(target=owner.incarnation, topic_id=topic_id)
        await self._channel(owner).call(UNLOAD, request, timeout_ms=UNLOAD_TIMEOUT_MS)

    async def truncate(self, owner: LiveOwner, topic_id: TopicId) -> None:
        """Make the owner delete all messages of the topic. Raises NotOwner, or another retriable error."""
        request = truncation_pb2.TruncateRequest(target=owner.incarnation, topic_id=topic_id)
        await self._channel(owner).call(TRUNCATE, request, timeout_ms=TRUNCATE_TIMEOUT_MS)

    async def trim(self, owner: LiveOwner, topic_id: TopicId, before_index: int | None) -> int:
        """Make the owner delete the ledgers that have only messages below an index; None: below the durable end.
        Returns the first index afterwards. Raises InvalidArgument for an index behind the end, NotOwner, or another
        retriable error."""
        request = truncation_pb2.TrimRequest(target=owner.incarnation, topic_id=topic_id, before_index=before_index)
        return (await self._channel(owner).call(TRIM, request, timeout_ms=TRUNCATE_TIMEOUT_MS)).first_index

    async def state(
        self,
        owner: LiveOwner,
        topic_id: TopicId,
        *,
        internal: bool,
        subscriptions: bool = False,
        producers_after: int | None = None,
    ) -> pb.TopicState | None:
        """The state of one topic at the owner; None: the owner does not hold it. subscriptions: the statistics list
        them, up to 4 MiB. producers_after: the internal ones have the producers behind this id. Raises a retriable
        error."""
        request = pb.TopicStatesRequest(
            topic_ids=[topic_id],
            internal=internal,
            without_subscriptions=not subscriptions,
            producers_after=producers_after,
        )
        answer = await self._channel(owner).call(TOPIC_STATES, request, timeout_ms=STATES_TIMEOUT_MS)
        return next((state for state in answer.states if state.topic_id == topic_id), None)

    async def ask(
        self,
        owner: LiveOwner,
        method: UnaryMethod[RequestT, ReceivedRequestT, AnswerT, ReceivedAnswerT],
        request: RequestT,
        *,
        timeout_ms: int,
    ) -> ReceivedAnswerT:
        """One call. Raises the owner's error, or a retriable error if there is no answer."""
        return await self._channel(owner).call(method, request, timeout_ms=timeout_ms)

    async def ask_each(
        self,
        owners: Sequence[LiveOwner],
        method: UnaryMethod[RequestT, ReceivedRequestT, AnswerT, ReceivedAnswerT],
        request: RequestT,
        *,
        timeout_ms: int,
    ) -> list[tuple[LiveOwner, ReceivedAnswerT | OncelogError]]:
        """The same call to several owners at once: (owner, its answer, or why there is none)."""

        async def one(owner: LiveOwner) -> ReceivedAnswerT | OncelogError:
            try:
                return await self.ask(owner, method, request, timeout_ms=timeout_ms)
            except InvariantViolated:
                raise
            except OncelogError as error:
                return error

        return list(zip(owners, await asyncio.gather(*map(one, owners)), strict=True))

    def _channel(self, owner: LiveOwner) -> Channel:
        return self._channels.shared(address_of(owner), key=owner.incarnation)

    def owners_changed(self, live: list[LiveOwner]) -> None:
        """Connect to new owners ahead of their first hand-over, and close the channels to owners that are gone."""
        for owner in live:
            self._channel(owner).connect_ahead()
        self._channels.retain(owner.incarnation for owner in live)

    async def close(self) -> None:
        await self._channels.close()
