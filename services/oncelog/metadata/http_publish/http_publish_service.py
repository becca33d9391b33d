"""Publishing over HTTP: through an SDK client of this cluster, by producer name or idempotency key, with a timeout."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from oncelog.client.client import AsyncClient
from oncelog.client.producing.duplicates import DuplicateRules
from oncelog.client.producing.pending_results import without_errors
from oncelog.client.values.results import BatchResult, SendResult
from oncelog.core.address import join_address
from oncelog.core.errors import DeadlineExceeded, IdempotencyUnavailable, OncelogError
from oncelog.core.formats.message_id import MessageId
from oncelog.core.names import TopicName
from oncelog.metadata.http_publish.keyed_producers import KeyedProducers
from oncelog.metadata.http_publish.keyed_publish import KeyedAnswer, KeyedPublishes
from oncelog.metadata.http_publish.named_producers import NamedProducerKey, NamedProducers
from oncelog.metadata.http_publish.publish_body import (
    MessageAnswer,
    MessageOutcome,
    Messages,
    PublishAnswer,
    PublishLimits,
)
from oncelog.metadata.topics.topic_lookup import TopicLookup
from oncelog.metadata_store.keys.idempotency_keys import KeyStore
from oncelog.metadata_store.records.policy_store import PolicyStore
from oncelog.runtime.settings import MetadataSettings

logger = logging.getLogger(__name__)

T = TypeVar("T")
_ANY_HOST = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104
#: Of the timeout of a request, for opening its producer.
_OPENING_PART = 0.9
_UNVERIFIED = (
    "messages with verified=false were not stored by this request: their sequence ids are older than all batches that "
    "the log remembers for this producer, so it is unknown whether they were stored before. If they are new, they are "
    "lost: publish them again with higher sequence ids or another producer name"
)
#: Until somebody has configured Redis, no repeat helps.
_NO_KEYS_RETRY_S = 3_600
_NO_KEYS = (
    "publishing with an idempotency key is not configured: set ONCELOG_REDIS_URL on the metadata service, or send a "
    "producer name with sequence ids"
)


@dataclass(frozen=True, slots=True)
class Reaching:
    """What publishing needs: an SDK client, and parts of the metadata service."""

    client: AsyncClient
    lookup: TopicLookup
    policies: PolicyStore


class HttpPublishService:
    """keys None: idempotency keys are not configured. Start `run` as a task; call `close` before closing the client."""

    def __init__(self, reaching: Reaching, settings: MetadataSettings, keys: KeyStore | None) -> None:
        self.limits = PublishLimits(
            settings.publish_body_bytes_max, settings.publish_message_bytes_max, settings.publish_messages_max
        )
        #: messages by "named" and "keyed", keys by "replayed", "settled" and "refused"
        self.counts: Counter[str] = Counter()
        self._named = NamedProducers(reaching.client, producers_max=settings.publish_producers_max)
        self._keys = keys
        self._keyed: KeyedPublishes | None = None
        self._timeout_s = settings.publish_timeout_ms / 1000
        self._requests: set[asyncio.Task[Any]] = set()
        if keys is not None:
            producers = KeyedProducers(
                reaching.client, reaching.lookup, keys, producers_max=settings.publish_producers_max
            )
            self._keyed = KeyedPublishes(keys, producers, reaching.policies, settled=lambda: self._count("settled"))

    async def publish_named(
        self, key: NamedProducerKey, ids: Sequence[int], messages: Messages, rules: DuplicateRules
    ) -> PublishAnswer:
        """Raises the SDK's errors. After DeadlineExceeded, sending the same sequence ids again is safe."""
        try:
            work = self._named.publish(key, ids, messages)
            result = await self._with_timeout(work, "the same sequence ids", lambda: self._named.last_error(key))
            result = without_errors(result.with_ranges(rules.applied))
        except OncelogError as error:
            if isinstance(error.result, BatchResult):
                fates = _fates(ids, error.result)
                # If all messages have the same fate, `stored` and `code` of the problem itself show it.
                error.result = fates if len({(fate.stored, fate.code) for fate in fates}) > 1 else None
            raise
        self._count("named", len(messages.values))
        answer = PublishAnswer(topic=str(key.topic), producer_name=key.name, messages=_rows(ids, result))
        if not result.verified:
            answer.warning = _UNVERIFIED
        return answer

    async def publish_keyed(
        self, topic: TopicName, key: str, messages: Messages, role: str = ""
    ) -> tuple[PublishAnswer, KeyedAnswer]:
        """Returns the body of the response, and what it says. Raises the errors of `core.http_publish.idempotency`."""
        keyed = self._keyed
        if keyed is None:
            raise IdempotencyUnavailable(_NO_KEYS, retry_after_s=_NO_KEYS_RETRY_S).of_send(stored=False)
        try:
            work = keyed.publish(topic, key, messages, role)
            answer = await self._with_timeout(work, "the same key", lambda: keyed.producers.last_error(topic))
        except OncelogError:
            self._count("refused")
            raise
        self._count("replayed" if answer.replayed else "keyed", 1 if answer.replayed else len(messages.values))
        return _keyed_answer(answer), answer

    async def run(self) -> None:
        """Check Redis once, so that problems are logged at the start; then run background tasks; never returns."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._named.run())
            if self._keys is not None and self._keyed is not None:
                tasks.create_task(self._keyed.producers.run())
                tasks.create_task(self._check(self._keys))

    async def close(self) -> None:
        """Cancel the requests in progress; a repeat of a keyed request settles its key."""
        for request in self._requests:
            request.cancel()
        if self._requests:
            await asyncio.wait(self._requests)
        if self._keyed is not None:
            await self._keyed.producers.close()
        if self._keys is not None:
            await self._keys.close()

    async def _check(self, keys: KeyStore) -> None:
        try:
            await keys.check()
        except OncelogError as error:
            logger.error("idempotency keys are unavailable: %s", error.message)
        else:
            logger.info("idempotency keys are available")

    async def _with_timeout(
        self, work: Coroutine[Any, Any, T], retry_with: str, last_error: Callable[[], OncelogError | None]
    ) -> T:
        """The result of the work, which continues if its client disconnects.

        last_error: why the producer cannot publish now. Raises DeadlineExceeded, which names that.
        """
        request = asyncio.ensure_future(work)
        self._requests.add(request)
        request.add_done_callback(self._ended)
        done, _ = await asyncio.wait([request], timeout=self._timeout_s)
        if not done:
            message = f"the publish did not finish within {self._timeout_s:g} s and continues: retry with {retry_with}"
            if (error := last_error()) is None:
                raise DeadlineExceeded(message)
            raise DeadlineExceeded(f"{message}. It waits: {error.message}", reason=error.code) from error
        return request.result()

    def _ended(self, request: "asyncio.Task[Any]") -> None:
        self._requests.discard(request)
        if not request.cancelled():
            request.exception()  # retrieved here: the request handler may have timed out

    def _count(self, what: str, number: int = 1) -> None:
        self.counts[what] += number


async def own_client(settings: MetadataSettings, port: int) -> AsyncClient:
    """An SDK client of this replica, with the token and the CA of the services."""
    host = _ANY_HOST.get(settings.listen_host, settings.listen_host)
    scheme = "oncelog+tls" if settings.tls_certificate_file else "oncelog"
    return AsyncClient(
        f"{scheme}://{join_address(host, port)}",
        token=Path(settings.auth_token_file) if settings.auth_token_file else None,
        tls_ca_file=settings.tls_ca_file or None,
        allow_plaintext_token=True,
        # A producer that cannot be opened says why before the timeout of its request.
        operation_timeout=settings.publish_timeout_ms / 1000 * _OPENING_PART,
        # An answer of HTTP consume is in the memory of this replica.
        max_message_bytes=0,
        internal=True,
    )


def _rows(ids: Sequence[int], result: BatchResult) -> list[MessageAnswer]:
    return [
        MessageAnswer(
            message_id=None if each.message_id is None else str(each.message_id),
            sequence_id=sequence_id,
            duplicate=each.duplicate,
            resent=each.resent,
            verified=each.verified,
            **({"content_differs": each.content_differs} if each.duplicate else {}),
        )
        for each, sequence_id in zip(result.results, ids, strict=True)
        if isinstance(each, SendResult)
    ]


def _fates(ids: Sequence[int], result: BatchResult) -> list[MessageOutcome]:
    """The fate of each message of a failed publish."""
    fates = []
    for each, sequence_id in zip(result.results, ids, strict=True):
        if isinstance(each, SendResult):
            stored = True if each.verified else None
            fates.append(MessageOutcome(sequence_id=sequence_id, stored=stored, duplicate=each.duplicate, code=None))
        else:
            fates.append(MessageOutcome(sequence_id=sequence_id, stored=each.stored, duplicate=False, code=each.code))
    return fates


def _keyed_answer(answer: KeyedAnswer) -> PublishAnswer:
    """The answer, the same for each repeat: all messages of a claim are in one entry, in order."""
    first = MessageId.parse(answer.message_id) if answer.message_id else None
    rows = [
        MessageAnswer(
            message_id=None if first is None else str(replace(first, batch_index=first.batch_index + index)),
            sequence_id=answer.claim.first + index,
            duplicate=False,
            resent=False,
            verified=True,
        )
        for index in range(answer.claim.count)
    ]
    return PublishAnswer(topic=str(answer.topic), producer_name=answer.claim.producer_name, messages=rows)
