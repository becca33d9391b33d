"""A record that cannot be read is an error of that record, logged and counted; nothing else fails."""

import ast
import json
import logging
import re
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest

from oncelog.core.era import FIRST_ERA
from oncelog.core.errors import CorruptEntry, InvalidArgument
from oncelog.core.formats.topic_record import DEDUP_CURSOR, decode_cursor, decode_topic
from oncelog.core.http_publish.key_record import decode_key_record
from oncelog.core.ids import Incarnation, LedgerId, TopicId
from oncelog.core.ledger.metadata import decode_ledger
from oncelog.core.names import parse_topic
from oncelog.core.records.id_claim import Counter, decode_counter
from oncelog.core.records.records import ABSENT_VERSION
from oncelog.core.records.status import WriteStatus
from oncelog.metadata.restore.noted_records import copied_records, names_in
from oncelog.metadata.restore.record_kinds import place_of
from oncelog.metadata_store.keys import idempotency_keys
from oncelog.metadata_store.records import cluster_store, deletion_store, json_records, registry, topic_store
from oncelog.metadata_store.records.cluster_store import ClusterStore
from oncelog.metadata_store.records.counter_store import CounterStore
from oncelog.metadata_store.records.cursor_store import CursorStore
from oncelog.metadata_store.records.json_records import DAMAGED, KINDS, DamagedRecords, kind_of, observe_damaged
from oncelog.metadata_store.records.ledger_store import LedgerStore
from oncelog.metadata_store.records.policies import decode_policies
from oncelog.metadata_store.records.policy_store import PolicyStore
from oncelog.metadata_store.records.registry import LiveOwner, Registry
from oncelog.metadata_store.session import paths
from oncelog.metadata_store.session.store_session import create_or_write
from oncelog.runtime.telemetry import Telemetry
from tests.contract.owner.owner_world import PublishClient, batch_of, owner_world
from tests.contract.stores.memory_store import MemorySession, MemoryTree

pytestmark = pytest.mark.asyncio

DECODERS: list[Callable[[bytes], object]] = [
    decode_topic,
    decode_cursor,
    decode_ledger,
    decode_counter,
    decode_key_record,
    decode_policies,
    cluster_store.decode_cluster,
    idempotency_keys.decode_dataset,
    topic_store.decode_name,
    registry.decode_cookie,
    lambda data: registry._decode_owner("a", data),
    lambda data: registry._decode_node("a", data),
    lambda data: registry._decode_metadata("a", data),
    lambda data: deletion_store.decode_deletion(TopicId("ab" * 16), data),
]
#: Every name of a field in any record.
FIELDS = (
    "topic_id", "name", "owner", "owner_epoch", "ledgers", "ledger_id", "members", "ack_quorum", "state", "end",
    "length", "digest", "next", "claimer", "nonce", "fingerprint", "producer_name", "first", "count", "answer",
    "deduplication", "auto_create_topics", "permissions", "cluster_id", "marker", "run", "replicated", "lost_at_ms",
    "partitions", "deleted", "incarnation", "host", "port", "ports", "retired", "read_only", "since_ms", "free_bytes",
    "advertised",
)  # fmt: skip
DEEP = 50_000


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


def with_all(value: str) -> bytes:
    """A record with this JSON in every field."""
    return ('{"format":1,' + ",".join(f'"{name}":{value}' for name in FIELDS) + "}").encode()


HOSTILE = [
    b"",
    b"null",
    b"[]",
    b'"text"',
    b"\xff\xfe",
    nested(DEEP).encode(),
    b'{"a":' * DEEP,
    b'{"format":' + nested(500).encode() + b"}",
    b'{"format":1}',
    b'{"format":2}',
    with_all(nested(100)),
    with_all(nested(900)),
    with_all("9" * 5_000),
    with_all("9" * 30),
    with_all("-1e400"),
    with_all("{}"),
    with_all("[[]]"),
    with_all('[["a","b"]]'),
    with_all("NaN"),
]


@pytest.mark.parametrize("decode", DECODERS)
async def test_hostile_records_are_only_corrupt(decode: Callable[[bytes], object]) -> None:
    """Deeply nested JSON in one record ended every owner. Accepted records have values of the right types and sizes."""
    for data in HOSTILE:
        try:
            read = decode(data)
        except CorruptEntry:
            continue
        assert len(repr(read)) < 10_000
        json.dumps(getattr(read, "further", None))


async def test_policies_keep_unknown_fields_within_limits() -> None:
    """They are written back, and the stack may be deeper at the write than at the read."""
    with pytest.raises(CorruptEntry):
        decode_policies(b'{"format":1,"later":' + nested(400).encode() + b"}")
    assert decode_policies(b'{"format":1,"later":[[1]]}').further == {"later": [[1]]}


async def test_policies_with_invalid_limits_are_refused() -> None:
    """A damaged limit must not pass for "no limit", nor delete anything."""
    for limit in (
        b'"retention":{"time_ms":-1,"size_bytes":null}', b'"retention":7', b'"retention":{}', b'"message_ttl_s":true',
        b'"backlog_quota":{"action":"wait","bytes_max":1,"age_ms_max":null}', b'"ack_state_bytes_max":67108865',
    ):  # fmt: skip
        with pytest.raises(CorruptEntry):
            decode_policies(b'{"format":1,' + limit + b"}")


async def test_damaged_cluster_policy_ends_no_owner(tmp_path: Path) -> None:
    """The previous policies stay in force: topics are served, and takeovers succeed."""
    async with owner_world(tmp_path) as (world, channel):
        client = PublishClient(channel)
        granted = await client.open(await world.serve("flights"), "importer")
        damaged = b'{"format":1,"later":' + nested(900).encode() + b"}"
        before = DAMAGED.counts["policies record"]
        assert await world.session.create(paths.CLUSTER_POLICIES, damaged) is WriteStatus.OK
        await client.stored(granted, batch_of(granted, [1]))
        other = await client.open(await world.serve("trains"), "importer")
        await client.stored(other, batch_of(other, [1]))
        assert DAMAGED.counts["policies record"] > before


async def test_damaged_registration_hides_no_other() -> None:
    """It counts as absent. A cookie that cannot be read counts as retired, so that it gets no new ledgers."""
    session = MemorySession(MemoryTree(), root="/oncelog")
    await ClusterStore(session).establish()
    live = Registry(session)
    well = Incarnation("a" * 32)
    await live.register_owner(LiveOwner(well, "host", {"grpc": 1}, 0)).establish()
    await session.create(f"{paths.OWNERS}/{'b' * 32}", with_all(nested(900)), ephemeral=True)
    await session.create(f"{paths.OWNERS}/{'c' * 32}", with_all('"text"'), ephemeral=True)
    assert list(await live.owners.live()) == [well]
    async for records in live.owners.watch():
        assert list(records) == [well]
        break
    await session.create(f"{paths.STORAGE_COOKIES}/{'d' * 32}", b"{")
    assert [cookie.retired for cookie in (await live.cookies()).values()] == [True]


async def test_topic_record_below_level_8_is_refused_and_not_called_damaged() -> None:
    """It is intact. A rebuild of the record is no way out: the cluster must be created anew."""
    session = MemorySession(MemoryTree(), root="/oncelog")
    await ClusterStore(session).establish()
    topics = topic_store.TopicStore(session)
    topic_id = (await topics.create(parse_topic("one"))).name.value.topic_id
    node = await session.read(paths.topic(topic_id))
    assert node is not None
    before = DAMAGED.counts["topic record"]
    older = json.dumps({**json.loads(node.data), "format": 5}).encode()
    await session.write(paths.topic(topic_id), older, version=node.version)
    with pytest.raises(CorruptEntry) as refused:
        await topics.read(topic_id)
    sentence = "topic record of format 5, below level 8, the lowest that this version reads"
    assert refused.value.message == f"{paths.topic(topic_id)}: {sentence}"
    assert DAMAGED.counts["topic record"] == before


async def test_damaged_topic_record_affects_only_that_topic() -> None:
    """Other topics are listed and read."""
    session = MemorySession(MemoryTree(), root="/oncelog")
    await ClusterStore(session).establish()
    topics = topic_store.TopicStore(session)
    created = [(await topics.create(parse_topic(name))).name.value.topic_id for name in ("one", "two")]
    node = await session.read(paths.topic(created[0]))
    assert node is not None
    await session.write(paths.topic(created[0]), nested(DEEP).encode(), version=node.version)
    with pytest.raises(CorruptEntry, match=f"^{paths.topic(created[0])}: ") as refused:
        await topics.read(created[0])
    assert refused.value.details["path"] == paths.topic(created[0])
    assert await topics.read(created[1]) is not None
    found = [type(each).__name__ async for each in topics.each()]
    assert sorted(found) == ["CorruptEntry", "TopicRecord"]


@pytest.mark.hazard("unreadable-record")
async def test_errors_of_damaged_records_name_what_to_rebuild() -> None:
    """Each kind that `oncelog admin backup rebuild` writes anew is read with its path."""
    session = MemorySession(MemoryTree(), root="/oncelog")
    await ClusterStore(session).establish()
    topics, name = topic_store.TopicStore(session), parse_topic("one")
    topic_id = (await topics.create(name)).name.value.topic_id
    cookie = Incarnation("d" * 32)
    reads: dict[str, Callable[[], Awaitable[object]]] = {
        paths.topic_name(name): partial(topics.find, name),
        paths.topic(topic_id): partial(topics.read, topic_id),
        paths.cursor(topic_id, DEDUP_CURSOR): partial(CursorStore(session).read, topic_id, DEDUP_CURSOR),
        paths.ledger(LedgerId(7)): partial(LedgerStore(session).read, LedgerId(7)),
        paths.page(topic_id, LedgerId(7)): partial(topics.pages.read, topic_id, LedgerId(7)),
        paths.deletion(topic_id): partial(deletion_store.DeletionStore(session).read, topic_id),
        paths.KEY_DATASET: idempotency_keys.DatasetStore(session).read,
        paths.storage_cookie(cookie): partial(Registry(session).read_cookie, cookie),
        paths.topic_policies(topic_id): partial(PolicyStore(session).read, topic_id),
        f"{paths.IDS}/ledger": CounterStore(session, Counter.LEDGER, FIRST_ERA).read,
    }
    await session.ensure_path(paths.pages(topic_id))
    for path, read in reads.items():
        node = await session.read(path)
        await create_or_write(session, path, b"garbage", version=ABSENT_VERSION if node is None else node.version)
        with pytest.raises(CorruptEntry, match=f"^{path}: .*`oncelog admin backup rebuild {path}`"):
            await read()
        assert place_of(path).path == path, "the command that the error names takes it"
    with pytest.raises(CorruptEntry, match=f"^{paths.topic(topic_id)}: "):
        copied_records({paths.topic(topic_id): b"garbage"})
    with pytest.raises(CorruptEntry, match=f"^{paths.topic_name(name)}: "):
        names_in({paths.topic_name(name): b"garbage"})


async def test_every_kind_of_record_is_in_the_table_of_what_to_do() -> None:
    """And the command takes exactly those of which the table says so."""
    text = (Path(__file__).parents[3] / "docs/incidents.md").read_text()
    chapter = text.partition("## A damaged record in ZooKeeper")[2].partition("\n## ")[0]
    rows = [row.split("|")[1:-1] for row in chapter.splitlines() if row.startswith("| `/")]
    told = {path: row[-1] for row in rows for path in re.findall("`(/[^`]*)`", row[0])}
    assert paths.__doc__ is not None
    kinds = {
        path
        for line in paths.__doc__.splitlines()
        if line.startswith("    /")
        for path in re.split("  +", line.strip(), maxsplit=1)[0].split("  ")
    }
    ids = {"/ids/ledger", "/ids/producer"}
    assert told.keys() - ids == kinds - {"/era-<e>"} - ids
    for path, advice in told.items():
        example = path.replace("/<id>", "/7").replace("<ledger id>", "7").replace("<name>", DEDUP_CURSOR)
        example = re.sub("<(topic_id|incarnation)>", "ab" * 16, example)
        example = re.sub("<[a-z]*>", "public", example)
        if "rebuild" in advice:
            assert place_of(example).path == example
        else:
            with pytest.raises(InvalidArgument):
                place_of(example)


async def test_damaged_record_is_logged_once_and_counted_each_time(caplog: pytest.LogCaptureFixture) -> None:
    """The record is read repeatedly."""
    damaged = DamagedRecords()
    with caplog.at_level(logging.ERROR):
        for path in ("/topics/one", "/topics/one", "/topics/two"):
            damaged.note("a topic record", b"same", "why", path=path)
    assert damaged.counts == {"topic record": 3}
    assert [vars(record)["fields"]["path"] for record in caplog.records] == ["/topics/one", "/topics/two"]
    telemetry = Telemetry("metadata", "a")
    observe_damaged(telemetry)
    DAMAGED.note("a topic record", b"x", "why")
    assert b"oncelog_damaged_records_total{" in telemetry.metrics_text()


async def test_every_kind_of_record_is_exported_at_zero() -> None:
    """An alert on an increase would miss the first failure of a series that did not exist before."""
    calls = [
        call
        for file in Path(json_records.__file__).parents[1].rglob("*.py")
        for call in ast.walk(ast.parse(file.read_text()))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
    ]
    read = {
        kind_of(argument.value)
        for call in calls
        if isinstance(call.func, ast.Name) and call.func.id in {"decode_record", "decoded"}
        for argument in call.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    }
    assert read == set(KINDS)
    telemetry = Telemetry("metadata", "a")
    observe_damaged(telemetry)
    text = telemetry.metrics_text().decode()
    assert set(re.findall(r'oncelog_damaged_records_total\{.*record="([^"]*)"', text)) >= set(KINDS)
