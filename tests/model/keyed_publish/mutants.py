"""Planted bugs of keyed publish: each takes one rule from the procedure, from the producers or from the key store."""

import asyncio
from dataclasses import replace
from typing import Any

from oncelog.core.http_publish.idempotency import (
    ClaimPublished,
    ClaimWritten,
    FenceCompleted,
    KeyedPublish,
    KeyedPublishState,
    ReleaseClaim,
)
from oncelog.core.http_publish.key_dataset import RefuseKeys, ServeKeys, check_dataset
from oncelog.core.http_publish.key_record import FoundKey
from oncelog.core.http_publish.keyed_producer import KeyedProducer
from oncelog.core.ids import SequenceId
from oncelog.core.records.status import WriteStatus
from oncelog.metadata.http_publish.keyed_publish import _ids, _KeyedRequest
from oncelog.metadata.http_publish.named_producers import send
from oncelog.metadata_store.keys import idempotency_keys
from tests.simulation.planted.planted_bug import Mutant

_claim_written, _continue_from = KeyedPublish._claim_written, KeyedPublish._continue_from
_publish_failed, _fenced = KeyedPublish._publish_failed, KeyedPublish._fenced


def _unknown_is_written(core: KeyedPublish, event: ClaimWritten) -> Any:
    return _claim_written(core, ClaimWritten(WriteStatus.OK) if event.status is WriteStatus.UNKNOWN else event)


def _unknown_is_released(core: KeyedPublish, event: ClaimWritten) -> Any:
    effects = _claim_written(core, event)
    if event.status is WriteStatus.UNKNOWN:
        effects[0] = ReleaseClaim(core._own_claim())
    return effects


def _conflict_is_written(core: KeyedPublish, event: ClaimWritten) -> Any:
    return _claim_written(core, ClaimWritten(WriteStatus.OK) if event.status is WriteStatus.CONFLICT else event)


def _any_messages(core: KeyedPublish, found: FoundKey | None) -> Any:
    if found is not None:
        found = replace(found, record=replace(found.record, fingerprint=core.fingerprint))
    return _continue_from(core, found)


def _settled_without_the_log(core: KeyedPublish) -> Any:
    return core._fenced(SequenceId(-1))


def _settled_one_below(core: KeyedPublish, last: SequenceId) -> Any:
    return _fenced(core, SequenceId(last - 1))


def _failure_is_not_stored(core: KeyedPublish, error: Any) -> Any:
    effects = _publish_failed(core, error)
    return [*effects[:-1], *core._reserve()] if core.state is KeyedPublishState.READING else effects


def _always_in_progress(self: Any, name: str) -> Any:
    async def holds() -> bool:
        return True

    return holds()


def _released_when_it_leaves(request: _KeyedRequest) -> None:
    reserved, request._reserved = request._reserved, None
    if reserved is not None and reserved.core.reserved is not None:
        request._shared.producers.release(reserved, reserved.core.reserved)
    _leave(request)


_leave = _KeyedRequest._leave


async def _handed_over_late(request: _KeyedRequest, claim: Any) -> Any:
    keyed, request._reserved = request._reserved, None
    assert keyed is not None
    request._shared.producers.use(keyed, claim)
    request._publishing = keyed
    keyed.lock.release()
    await request._shared.keys.holds(claim.producer_name)
    result = await asyncio.ensure_future(send(keyed.producer, _ids(claim), request._messages))
    return ClaimPublished(str(result.message_ids[0] or ""))


def _ids_again(producer: KeyedProducer, claim: Any) -> None:
    producer._end(claim)


def _retired_in_name_only(producer: KeyedProducer) -> None:
    producer.reserved = None


def _serves_after_a_loss(*given: Any, **named: Any) -> Any:
    verdict = check_dataset(*given, **named)
    return ServeKeys() if isinstance(verdict, RefuseKeys) else verdict


async def _repeated_without_deduplication(request: _KeyedRequest, claim: Any) -> Any:
    assert request._fenced is not None
    result = await send(request._fenced, _ids(claim), request._messages)
    return ClaimPublished(str(result.message_ids[0] or ""))


async def _read_without_fencing(request: _KeyedRequest, name: str) -> Any:
    log = request._shared.producers._client._log  # type: ignore[attr-defined]
    known = log.producers[name]
    known.generation -= 1
    await _fence(request, name)
    return FenceCompleted(SequenceId(known.last))


_fence = _KeyedRequest._fence
_HAZARD = "key-without-message"


def _core(name: str, seed: int, method: str, instead: Any) -> Mutant:
    return Mutant(name, _HAZARD, seed, ((KeyedPublish, method, instead),))


def _shell(name: str, seed: int, method: str, instead: Any) -> Mutant:
    return Mutant(name, _HAZARD, seed, ((_KeyedRequest, method, instead),))


KEYED_MUTANTS = (
    _core("claim of unknown outcome is taken for written", 65, "_claim_written", _unknown_is_written),
    _core("claim of unknown outcome is released", 16, "_claim_written", _unknown_is_released),
    _core("claim is published although another was written", 1, "_claim_written", _conflict_is_written),
    _core("key answers other messages", 0, "_continue_from", _any_messages),
    _core("claim of a dead holder is given up without the log", 6, "_fence", _settled_without_the_log),
    _core("stored claim is taken for not stored", 6, "_fenced", _settled_one_below),
    _core("publish of unknown outcome gets new ids", 6, "_publish_failed", _failure_is_not_stored),
    Mutant("holder always looks alive", _HAZARD, 6, ((idempotency_keys.KeyStore, "holds", _always_in_progress),)),
    _shell("cancelled claim is released", 189, "_leave", _released_when_it_leaves),
    _shell("producer is unlocked before it has the messages", 22, "_publish", _handed_over_late),
    Mutant("ids are used again", _HAZARD, 0, ((KeyedProducer, "use", _ids_again),)),
    Mutant("retired producer goes on", _HAZARD, 58, ((KeyedProducer, "retire", _retired_in_name_only),)),
    Mutant("keys are served after a loss", _HAZARD, 7, ((idempotency_keys, "check_dataset", _serves_after_a_loss),)),
    _shell("claim is repeated without deduplication", 7, "_republish", _repeated_without_deduplication),
    _shell("claim is settled without fencing", 9, "_fence", _read_without_fencing),
)
