"""Planted bugs of keyed publish: each takes one rule from the procedure, from the producers or from the key store."""

import asyncio
from dataclasses import replace
from typing import Any

from oncelog.core.errors import OncelogError
from oncelog.core.http_publish import idempotency
from oncelog.core.http_publish.key_dataset import RefuseKeys, ServeKeys, check_dataset
from oncelog.core.http_publish.key_record import FoundKey, encode_key_record
from oncelog.core.http_publish.keyed_producer import KeyedProducer
from oncelog.core.ids import SequenceId
from oncelog.core.records.status import WriteStatus
from oncelog.metadata.http_publish.keyed_publish import _ids, _KeyedRequest
from oncelog.metadata.http_publish.named_producers import send
from oncelog.metadata_store.keys import idempotency_keys
from oncelog.metadata_store.keys.idempotency_keys import StoredKey
from tests.simulation.planted.planted_bug import Mutant

_read, _write, _fence, _claim = StoredKey.read, StoredKey.write, _KeyedRequest.fence, idempotency._claim
_publish = idempotency._publish


async def _unknown_is_written(request: StoredKey, record: Any, **named: Any) -> Any:
    status, found = await _write(request, record, **named)
    return (WriteStatus.OK if status is WriteStatus.UNKNOWN and record.answer is None else status), found


class _Releases:
    """Ids that are released when they should be retired."""

    def __init__(self, ids: Any) -> None:
        self.release = self.retire = ids.release


class _Neither:
    """Ids whose end is left to the caller."""

    def __init__(self, ids: Any) -> None:
        self.release, self.retire = ids.release, lambda: None


async def _unknown_is_released(record: Any, found: Any, key: Any, ids: Any) -> Any:
    return await _claim(record, found, key, _Releases(ids))  # type: ignore[arg-type]


async def _cancelled_is_released(record: Any, found: Any, key: Any, ids: Any) -> Any:
    try:
        return await _claim(record, found, key, _Neither(ids))  # type: ignore[arg-type]
    except asyncio.CancelledError:
        ids.release()
        raise
    except OncelogError:
        if ids._own is not None:
            ids.retire()
        raise


async def _conflict_is_written(request: StoredKey, record: Any, **named: Any) -> Any:
    status, found = await _write(request, record, **named)
    return (WriteStatus.OK if status is WriteStatus.CONFLICT and record.answer is None else status), found


class _AnyText(str):
    """It equals every text."""

    __slots__ = ()

    def __eq__(self, _: object) -> bool:
        return True

    __hash__ = str.__hash__


async def _any_messages(request: StoredKey) -> Any:
    found = await _read(request)
    if found is None:
        return None
    return replace(found, record=replace(found.record, fingerprint=_AnyText(found.record.fingerprint)))


async def _settled_without_the_log(*_: Any) -> Any:
    return None


async def _settled_one_below(request: _KeyedRequest, name: str) -> Any:
    return SequenceId(await _fence(request, name) - 1)


async def _failure_is_not_stored(record: Any, key: Any, ids: Any) -> Any:
    try:
        return await _publish(record, key, ids)
    except idempotency._ReadAgain:
        before = FoundKey(record, encode_key_record(record))
        record = replace(record, claim=await ids.reserve())
        written, _ = await _claim(record, before, key, ids)
        if not written:
            raise
        return await _publish(record, key, ids)


async def _always_in_progress(*_: Any) -> bool:
    return True


async def _handed_over_late(request: _KeyedRequest, claim: Any) -> Any:
    keyed = request._own
    assert keyed is not None
    request._shared.producers.use(keyed, claim)
    request._publishing = True
    keyed.lock.release()
    await request._shared.keys.holds(claim.producer_name)
    result = await asyncio.ensure_future(send(keyed.producer, _ids(claim), request._messages))
    return str(result.message_ids[0] or "")


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
    return str(result.message_ids[0] or "")


async def _read_without_fencing(request: _KeyedRequest, name: str) -> Any:
    log = request._shared.producers._client._log  # type: ignore[attr-defined]
    known = log.producers[name]
    known.generation -= 1
    await _fence(request, name)
    return SequenceId(known.last)


_HAZARD = "key-without-message"


def _core(name: str, seed: int, method: str, instead: Any) -> Mutant:
    return Mutant(name, _HAZARD, seed, ((idempotency, method, instead),))


def _key(name: str, seed: int, method: str, instead: Any) -> Mutant:
    return Mutant(name, _HAZARD, seed, ((StoredKey, method, instead),))


def _shell(name: str, seed: int, method: str, instead: Any) -> Mutant:
    return Mutant(name, _HAZARD, seed, ((_KeyedRequest, method, instead),))


KEYED_MUTANTS = (
    _key("claim of unknown outcome is taken for written", 65, "write", _unknown_is_written),
    _core("claim of unknown outcome is released", 16, "_claim", _unknown_is_released),
    _key("claim is published although another was written", 1, "write", _conflict_is_written),
    _key("key answers other messages", 0, "read", _any_messages),
    _core("claim of a dead holder is given up without the log", 6, "_settle", _settled_without_the_log),
    _shell("stored claim is taken for not stored", 6, "fence", _settled_one_below),
    _core("publish of unknown outcome gets new ids", 7, "_publish", _failure_is_not_stored),
    Mutant("holder always looks alive", _HAZARD, 6, ((idempotency_keys.KeyStore, "holds", _always_in_progress),)),
    _core("cancelled claim is released", 189, "_claim", _cancelled_is_released),
    _shell("producer is unlocked before it has the messages", 22, "publish", _handed_over_late),
    Mutant("ids are used again", _HAZARD, 0, ((KeyedProducer, "use", _ids_again),)),
    Mutant("retired producer goes on", _HAZARD, 52, ((KeyedProducer, "retire", _retired_in_name_only),)),
    Mutant("keys are served after a loss", _HAZARD, 7, ((idempotency_keys, "check_dataset", _serves_after_a_loss),)),
    _shell("claim is repeated without deduplication", 7, "republish", _repeated_without_deduplication),
    _shell("claim is settled without fencing", 9, "fence", _read_without_fencing),
)
