"""The verification of a topic's fold, which runs at the topic's owner: begin it, look at it, cancel it, wait for its
end."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

from oncelog.core.errors import InvariantViolated, OncelogError, ServiceUnavailable
from oncelog.core.ids import TopicId
from oncelog.core.names import TopicName
from oncelog.metadata.owners.owner_calls import OwnerCalls
from oncelog.metadata.topics.topic_calls import TopicCalls
from oncelog.metadata_store.records.registry import LiveOwner
from oncelog.rpc.codecs.deduplication_codec import VERIFY_FOLD
from oncelog.wire import deduplication_pb2 as pb

Json = dict[str, Any]

#: The owner may prove first that it is the current one.
TIMEOUT_MS = 10_000
_LOOK_S = 0.5
#: Consecutive looks that may fail, each after up to 10 s: owners are restarted, and topics move.
_FAILURES_MAX = 6
#: How often it begins at another owner.
_MOVES_MAX = 3
_GOES_ON = ("queued", "running")


class OwnerFolds:
    def __init__(self, topic_calls: TopicCalls, calls: OwnerCalls) -> None:
        self._topic_calls = topic_calls
        self._calls = calls

    async def asked(self, topic: TopicName, **action: Any) -> Json | None:
        """The newest verification of the present owner; None: none was begun there. action: of a VerifyFoldRequest.

        Raises the errors of `TopicCalls.of_owner`.
        """

        async def ask(owner: LiveOwner, topic_id: TopicId) -> pb.DeduplicationAnswer:
            request = pb.VerifyFoldRequest(topic=str(topic), topic_id=topic_id, **action)
            return await self._calls.ask(owner, VERIFY_FOLD, request, timeout_ms=TIMEOUT_MS)

        found: Json | None = json.loads((await self._topic_calls.of_owner(topic, ask)).state_json)
        return found

    async def verified(self, topic: TopicName, bytes_per_s: int, seen: Callable[[Json], None]) -> Json:
        """A verification that has ended. It begins now, or was going on; at another owner it begins again.

        seen: is told its progress. One that was begun here is cancelled with this call. Raises OncelogError.
        """
        joined = await self.asked(topic)
        ours = joined is None or joined["state"] not in _GOES_ON
        try:
            return await self._until_ended(topic, bytes_per_s, seen)
        except asyncio.CancelledError:
            if ours:
                await asyncio.shield(self._cancelled(topic))
            raise

    async def _until_ended(self, topic: TopicName, bytes_per_s: int, seen: Callable[[Json], None]) -> Json:
        begun: Json | None = None
        moves = failures = 0
        while True:
            try:
                found = await (self.asked(topic, begin_bytes_per_s=bytes_per_s) if begun is None else self.asked(topic))
            except InvariantViolated:
                raise
            except OncelogError as error:
                failures += 1
                if not error.retriable or failures == _FAILURES_MAX:
                    raise
                found = begun
            else:
                failures = 0
                if found is None or (begun is not None and found["id"] != begun["id"]):
                    moves += 1
                    if moves > _MOVES_MAX:
                        raise ServiceUnavailable(f"topic {topic} has moved {moves} times while its owners verified it")
                    found = begun = None
            if found is not None:
                begun = found
                seen(found)
                if found["state"] not in _GOES_ON:
                    return found
            await asyncio.sleep(_LOOK_S)

    async def _cancelled(self, topic: TopicName) -> None:
        try:
            await self.asked(topic, cancel=pb.CancelVerification())
        except InvariantViolated:
            raise
        except OncelogError:
            return  # it ends with its topic at that owner
