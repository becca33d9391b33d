"""One publish request with an idempotency key: the key is mapped to sequence ids, and the log decides what is stored.

    read the key ── no record ──> reserve ids ──> write the claim ──> publish ──> write the answer
         |                             ^               |                 |
         |                             |               |                 +── failed: retire the producer, read again
         |                             |               +── another request wrote first: continue as if just read
         |                             |               +── unknown: retire the producer; refused, not published
         +── answered: same answer     |
         +── other messages: refused   +── its last stored id is below the claim
         +── pending: a live holder is in progress; a dead one's producer is fenced
                                       +── at or above it: republish (same ids: deduplicated), write the answer

A record (`KeyRecord`) holds a fingerprint of the messages, the claim (producer, first id, count) and, once known, the
answer. Records change by compare-and-set only.

Rules (hazard key-without-message)
- The claim is written before its messages are published, under ids that no other request uses (`keyed_producer`). So a
  key whose claim was lost was never published, and the record of a key whose messages are stored is always found.
- The log decides what became of another request's pending claim, and only after the claim's producer was fenced by
  opening it. A last stored id at or above the claim means that the messages are stored. Below it, they never will be,
  and only then the key is mapped to new ids. Without fencing, the holder could still publish the old ids afterwards.
- Whether the holder is alive affects only who waits: a live holder is not fenced.
- If the answer cannot be recorded, it is still returned, because the messages are stored. The producer is retired, so
  that the next repeat of the request settles the key by the log.
- A claim is one batch and therefore one entry: it is stored whole or not at all.
- Ids are released only if it is known that their claim was not written. Whatever else ends a request (an unknown
  outcome, a cancellation) retires their producer, and awaits nothing.
"""

from dataclasses import dataclass, replace
from typing import Protocol

from oncelog.core.errors import (
    IdempotencyKeyReused,
    IdempotencyUnavailable,
    InvalidArgument,
    OncelogError,
    ProducerFenced,
    PublishInProgress,
)
from oncelog.core.http_publish.key_record import FoundKey, KeyRecord, encode_key_record
from oncelog.core.http_publish.keyed_producer import Claim
from oncelog.core.ids import SequenceId
from oncelog.core.records.status import WriteStatus

#: Attempts of one request after others wrote the key or fenced its producer; then the sender is asked to retry.
ATTEMPTS_MAX = 4
#: How the message of IdempotencyUnavailable ends when the request may be repeated.
RETRY = ": retry with the same key"


@dataclass(frozen=True, slots=True)
class KeyedResult:
    """The end of a request: where its messages are stored. replayed: the answer was given before."""

    claim: Claim
    answer: str
    replayed: bool = False


class Key(Protocol):
    """The record of the request's key. Each call raises OncelogError: nothing was written."""

    async def read(self) -> FoundKey | None:
        """None: the key was not used within the idempotency window."""

    async def write(self, record: KeyRecord, *, replaces: bytes | None) -> tuple[WriteStatus, FoundKey | None]:
        """Write, if the stored record equals `replaces`; None: if there is none. CONFLICT comes with the present one,
        or None if it has just expired. A record without an answer is written while its ids are reserved."""

    async def has_live_holder(self, producer_name: str) -> bool:
        """Whether a live process still works on claims of this producer."""


class Ids(Protocol):
    """Sequence ids of the topic's keyed producer of this process; one reservation at a time."""

    async def reserve(self) -> Claim:
        """Wait for the producer. It belongs to this request until the claim is published, released or retired."""

    async def publish(self, claim: Claim) -> str:
        """Hand the messages to the producer, and the producer to other requests, with no await between. Returns the
        answer. Raises OncelogError: unless it means invalid messages, they may or may not be stored."""

    def release(self) -> None:
        """Free the reserved ids: the claim was not written."""

    def retire(self) -> None:
        """Publish no further id under this producer's name, and no longer count its holder as alive."""


class OtherProducer(Protocol):
    """The producer of another request's claim."""

    async def fence(self, producer_name: str) -> SequenceId:
        """Open it as a new instance, until the request ends. Returns its last stored id, -1 if there is none."""

    async def republish(self, claim: Claim) -> str:
        """Send the messages again under their ids, which the log recognises as duplicates. Otherwise as `publish`."""


async def publish_once(
    fingerprint: str, key: Key, ids: Ids, other: OtherProducer, *, without_role: str = ""
) -> KeyedResult:
    """Store the messages of one request once, and return where they are.

    fingerprint: of the messages and the caller's role. without_role: of the messages alone, as older services wrote
    it; a record that has it belongs to no role.
    Raises IdempotencyKeyReused, PublishInProgress, IdempotencyUnavailable, and what the ports raise.
    """
    retired: list[str] = []
    found = await key.read()
    for attempt in range(ATTEMPTS_MAX):
        if attempt and found is None:
            found = await key.read()
        if found is not None:
            if found.record.fingerprint not in (fingerprint, without_role):
                raise IdempotencyKeyReused(_REUSED, field="Idempotency-Key")
            if found.record.answer is not None:
                return KeyedResult(found.record.claim, found.record.answer, replayed=True)
            name = found.record.claim.producer_name
            # The holder of a producer that this request retired is this process.
            if name not in retired and await key.has_live_holder(name):
                raise PublishInProgress(_IN_PROGRESS, field="Idempotency-Key")
            try:
                if (settled := await _settle(found, key, other)) is not None:
                    return settled
            except _ReadAgain:
                found = None
                continue
        claim = await ids.reserve()
        try:
            record = KeyRecord(fingerprint, claim)
            written, found = await _claim(record, found, key, ids)
            if written:
                return await _publish(record, key, ids)
        except _ReadAgain:
            retired.append(claim.producer_name)
            found = None
    raise PublishInProgress("other requests with this key were faster each time: retry shortly")


class _ReadAgain(Exception):
    """What became of the messages is unknown here: the key's record is read again, and settled by the log."""


async def _settle(found: FoundKey, key: Key, other: OtherProducer) -> KeyedResult | None:
    """What became of another request's claim; None: its messages will never be stored."""
    claim = found.record.claim
    try:
        if await other.fence(claim.producer_name) < claim.first:
            return None
    except ProducerFenced as error:
        # Another request with the same key opened the producer at the same time, and settles the claim.
        raise _ReadAgain from error
    try:
        answer = await other.republish(claim)
    except InvalidArgument:
        raise
    except OncelogError as error:
        raise _ReadAgain from error
    await _answer(found, answer, key)
    return KeyedResult(claim, answer)


async def _claim(record: KeyRecord, found: FoundKey | None, key: Key, ids: Ids) -> tuple[bool, FoundKey | None]:
    """Write the claim in place of `found`. Returns whether it is written; if not, with the record that is."""
    try:
        status, present = await key.write(record, replaces=None if found is None else found.stored)
    except OncelogError:
        ids.release()
        raise
    except BaseException:
        ids.retire()
        raise
    if status is WriteStatus.UNKNOWN:
        ids.retire()
        raise IdempotencyUnavailable(f"nothing was published, but the key may have been recorded{RETRY}")
    if status is WriteStatus.OK or (present is not None and present.record == record):
        return True, None
    ids.release()
    return False, present


async def _publish(record: KeyRecord, key: Key, ids: Ids) -> KeyedResult:
    """The claim is written. Whatever else happens than a recorded answer retires the producer."""
    recorded = False
    try:
        answer = await ids.publish(record.claim)
        recorded = await _answer(FoundKey(record, encode_key_record(record)), answer, key)
    except InvalidArgument:
        raise  # the messages are invalid, so they are not stored; the next request with this key settles it
    except OncelogError as error:
        raise _ReadAgain from error
    finally:
        if not recorded:
            ids.retire()
    return KeyedResult(record.claim, answer)


async def _answer(found: FoundKey, answer: str, key: Key) -> bool:
    """Whether the answer is recorded, here or by another request that settled the key by the same log."""
    try:
        status, _ = await key.write(replace(found.record, answer=answer), replaces=found.stored)
    except OncelogError:
        return False
    return status is not WriteStatus.UNKNOWN


_REUSED = "this idempotency key was used for other messages, or by another role: use a new key for a new publish"
_IN_PROGRESS = "a publish with this key is in progress: retry shortly"
