"""Proofs of topics: one that is asked for or goes on, and the newest one that has ended, for each topic.

    asked for -> /proofs/<topic id>, rewritten as it goes on -> one transaction: removed, and its verdict written
                                                                 to /verdicts/<topic id>

Rules
- A proof that goes on changes by compare-and-set. So a request to cancel it is never lost, and a process whose work
  another one has taken over ends it.
- A topic has one proof at a time. Its former verdict stays until the next one is there, which remembers what it said.
- Another proof is written over one that cannot be read: nobody else would ever mend it.
- Both records go with the topic. A verdict is written only together with the removal of the proof, so a proof that
  ends after its topic was deleted leaves nothing.
"""

import logging
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from oncelog.core.errors import CorruptEntry
from oncelog.core.formats.record_fields import FURTHER, built
from oncelog.core.ids import TopicId
from oncelog.core.records.status import WriteStatus
from oncelog.metadata_store.records.json_records import decode_record, encode_record
from oncelog.metadata_store.session import paths
from oncelog.metadata_store.session.store_session import (
    CreateStep,
    DeleteStep,
    Step,
    StoreSession,
    Versioned,
    WriteResult,
    WriteStep,
)
from oncelog.verify.proof import TopicProof

logger = logging.getLogger(__name__)


class ProofStore:
    def __init__(self, session: StoreSession) -> None:
        self._session = session

    async def topics_with_proofs(self) -> list[TopicId]:
        """Topics with a proof that is asked for or goes on. Raises StoreUnavailable."""
        return list(map(TopicId, await self._session.children(paths.PROOFS)))

    async def topics_with_verdicts(self) -> list[TopicId]:
        """Raises StoreUnavailable."""
        return list(map(TopicId, await self._session.children(paths.VERDICTS)))

    async def proof(self, topic_id: TopicId) -> Versioned[TopicProof] | None:
        """The one that is asked for or goes on. Raises StoreUnavailable, CorruptEntry."""
        return await self._read(paths.proof(topic_id))

    async def verdict(self, topic_id: TopicId) -> TopicProof | None:
        """The newest one that has ended. Raises StoreUnavailable, CorruptEntry."""
        stored = await self._read(paths.verdict(topic_id))
        return None if stored is None else stored.value

    async def ask(self, proof: TopicProof) -> WriteStatus:
        """CONFLICT: the topic has one already, that can be read. Raises StoreUnavailable."""
        path = paths.proof(proof.topic_id)
        created = await self._session.create(path, _encode(proof))
        node = await self._session.read(path) if created is WriteStatus.CONFLICT else None
        if node is None:
            return created
        try:
            _decode(node.data)
        except CorruptEntry:  # nobody else would ever write it anew
            return (await self._session.write(path, _encode(proof), version=node.version)).status
        return created

    async def write(self, proof: TopicProof, *, version: int) -> WriteResult:
        """One compare-and-set of the proof that goes on. Raises StoreUnavailable."""
        return await self._session.write(paths.proof(proof.topic_id), _encode(proof), version=version)

    async def conclude(self, proof: TopicProof, *, version: int) -> WriteStatus:
        """Replace the proof that goes on by its verdict. Raises StoreUnavailable."""
        path = paths.verdict(proof.topic_id)
        former = await self._session.read(path)
        data = _encode(proof if former is None else _after(proof, former.data))
        written: Step = CreateStep(path, data) if former is None else WriteStep(path, data, former.version)
        return await self._session.transact([DeleteStep(paths.proof(proof.topic_id), version), written])

    async def delete(self, topic_id: TopicId) -> None:
        """Remove both records of a topic that was deleted. Retries until they are gone. Raises StoreUnavailable."""
        for path in (paths.proof(topic_id), paths.verdict(topic_id)):
            while (node := await self._session.read(path)) is not None:
                await self._session.delete(path, version=node.version)

    async def _read(self, path: str) -> Versioned[TopicProof] | None:
        node = await self._session.read(path)
        if node is None:
            return None
        return Versioned(_decode(node.data), node.version)


def _decode(data: bytes) -> TopicProof:
    """Raises CorruptEntry."""
    return decode_record(data, "the proof of a topic", _built)


def _built(fields: Mapping[str, Any]) -> TopicProof:
    return built(TopicProof, {"former": [], **fields})


def _after(proof: TopicProof, former: bytes) -> TopicProof:
    """A verdict that cannot be read is remembered by nothing but the log."""
    try:
        return proof.after(_decode(former))
    except CorruptEntry as error:
        logger.warning("the former verdict of topic %s cannot be read, and is replaced: %s", proof.topic, error.message)
        return proof


def _encode(proof: TopicProof) -> bytes:
    fields: dict[str, Any] = {**proof.further, **asdict(proof)}
    del fields[FURTHER]
    fields["state"] = proof.state.value
    fields["former"] = [{**each, "state": each["state"].value} for each in fields["former"]]
    if not proof.former:
        del fields["former"]
    fields["parts"] = [{**each, "part": each["part"].value, "state": each["state"].value} for each in fields["parts"]]
    return encode_record(fields)
