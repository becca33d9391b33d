"""A store writes back the fields of a record that only a newer version knows."""

import json
from dataclasses import replace

import pytest

from oncelog.core.http_publish.key_dataset import DatasetRecord
from oncelog.core.ids import Incarnation, TopicId
from oncelog.core.names import parse_topic
from oncelog.core.node.starts import JournalEnd, StorageEnd
from oncelog.core.records.records import ABSENT_VERSION
from oncelog.metadata_store.keys.idempotency_keys import DatasetStore
from oncelog.metadata_store.records.cluster_store import ClusterStore
from oncelog.metadata_store.records.proof_store import ProofStore
from oncelog.metadata_store.records.registry import Registry, StorageCookie
from oncelog.metadata_store.records.topic_store import TopicStore
from oncelog.metadata_store.session import paths
from oncelog.verify.proof import TopicProof
from tests.contract.stores.memory_store import MemorySession, MemoryTree

pytestmark = [pytest.mark.asyncio, pytest.mark.hazard("dropped-field")]

NODE = Incarnation("a" * 32)
LATER = {"x_future": {"since": [3, "q"]}}


async def new_session() -> MemorySession:
    session = MemorySession(MemoryTree())
    await ClusterStore(session).establish()
    return session


async def written_by_a_newer_version(session: MemorySession, path: str) -> None:
    """Add fields to the record."""
    node = await session.read(path)
    assert node is not None
    data = json.dumps({**json.loads(node.data), **LATER}).encode()
    await session.write(path, data, version=node.version)


async def later_fields(session: MemorySession, path: str) -> dict[str, object]:
    node = await session.read(path)
    assert node is not None
    return {name: value for name, value in json.loads(node.data).items() if name.startswith("x_")}


async def test_storage_cookie() -> None:
    """An operator sets it read-only."""
    session = await new_session()
    registry, path = Registry(session), f"{paths.STORAGE_COOKIES}/{NODE}"
    await registry.write_cookie(StorageCookie(NODE, "host", 1), version=ABSENT_VERSION)
    await written_by_a_newer_version(session, path)
    cookie = await registry.read_cookie(NODE)
    assert cookie is not None
    await registry.write_cookie(replace(cookie.value, read_only=True), version=cookie.version)
    assert await later_fields(session, path) == LATER
    again = await registry.read_cookie(NODE)
    assert again is not None
    assert again.value == replace(cookie.value, read_only=True)


async def test_end_of_a_journal() -> None:
    """A node notes it each second."""
    session = await new_session()
    registry, path = Registry(session), f"{paths.STORAGE_ENDS}/{NODE}"
    await registry.write_end(NODE, StorageEnd(1, "start", JournalEnd(1, 0)), version=ABSENT_VERSION)
    await written_by_a_newer_version(session, path)
    end = await registry.read_end(NODE)
    assert end is not None
    await registry.write_end(NODE, replace(end.value, end=JournalEnd(1, 8)), version=end.version)
    assert await later_fields(session, path) == LATER


async def test_name_of_a_topic() -> None:
    """A partitioned topic grows."""
    session = await new_session()
    topics, name = TopicStore(session), parse_topic("public/default/t")
    await topics.create(name, partitions=2)
    await written_by_a_newer_version(session, paths.topic_name(name))
    assert (await topics.prepare_growth(name, 4)).growing_to == 4
    assert (await topics.grow(name, 4)).partitions == 4
    assert await later_fields(session, paths.topic_name(name)) == LATER


async def test_record_of_the_keys() -> None:
    """Redis has got a replica."""
    session = await new_session()
    datasets = DatasetStore(session)
    await datasets.write(DatasetRecord("marker", "run"), version=ABSENT_VERSION)
    await written_by_a_newer_version(session, paths.KEY_DATASET)
    stored = await datasets.read()
    assert stored is not None
    await datasets.write(replace(stored.value, replicated=True), version=stored.version)
    assert await later_fields(session, paths.KEY_DATASET) == LATER


async def test_proof_of_a_topic() -> None:
    """An older replica cancels it."""
    session = await new_session()
    proofs, topic_id = ProofStore(session), TopicId("0f" * 16)
    await proofs.ask(TopicProof(topic_id, "public/default/t", "ann", 1, 1, 1))
    await written_by_a_newer_version(session, paths.proof(topic_id))
    stored = await proofs.proof(topic_id)
    assert stored is not None
    await proofs.write(replace(stored.value, cancel=True), version=stored.version)
    assert await later_fields(session, paths.proof(topic_id)) == LATER
