"""An owner lets in whom the topic's namespace lets in, by the topic's true name, whatever the client calls it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from oncelog.core.access import Caller
from oncelog.core.errors import OncelogError, PermissionDenied, Unauthenticated
from oncelog.core.formats.entry import SequenceMode
from oncelog.core.formats.opening import GatewayClient
from oncelog.core.ids import InstanceId
from oncelog.core.ledger.member_selection import StorageNodesUpdated
from oncelog.core.names import KAFKA_GROUPS, PROGRAM_PREFIXES, parse_namespace
from oncelog.metadata_store.records.namespace_store import NamespaceStore
from oncelog.metadata_store.records.policies import Policies
from oncelog.rpc.channel import Channel
from oncelog.rpc.codecs.group_codec import ASK_GROUP
from oncelog.rpc.codecs.owner_codec import (
    LAST_MESSAGE,
    LEASE_PRODUCER_ID,
    PRODUCER_NAMES,
    PUBLISH,
    TOPIC_STATES,
    OpenRequest,
    PublishFrame,
    ReceivedAnswers,
)
from oncelog.rpc.codecs.reader_codec import READ, ReadControl, ReaderStart, StartEdge
from oncelog.runtime.credentials import Credentials
from oncelog.topic_owner.observe.topic_states import internal_stats
from oncelog.topic_owner.shell.topic_runner import TopicRunner
from oncelog.topic_owner.streams.authorization import LOADING_DEADLINE_MS
from oncelog.wire.clients_pb2 import OnBehalfOf
from oncelog.wire.groups_pb2 import GroupRequest, ListGroups
from oncelog.wire.owner_pb2 import (
    LastMessageRequest,
    LeaseProducerIdAnswer,
    LeaseProducerIdRequest,
    ProducerNamesRequest,
    TopicStatesRequest,
)
from tests.cluster.until import until
from tests.contract.owner.owner_world import DEADLINE_S, OwnerWorld, PublishClient, batch_of, owner_world
from tests.contract.process.security_world import secured, token

pytestmark = pytest.mark.asyncio

DEFAULT = parse_namespace("public/default")
GRANTS: dict[str, tuple[str, ...]] = {"importer": ("produce",), "auditor": ("consume",), "keeper": ("admin",)}
TIMEOUT_MS = 30_000


@asynccontextmanager
async def owner(tmp_path: Path) -> AsyncIterator[tuple[OwnerWorld, TopicRunner, str]]:
    """An owner with authentication on that serves one topic, and its address."""
    async with owner_world(tmp_path, security=secured(tmp_path)) as (world, channel):
        await grant(world, GRANTS)
        yield world, await world.serve("flights"), channel.address


async def grant(world: OwnerWorld, grants: dict[str, tuple[str, ...]]) -> None:
    await world.parts.policies.change(DEFAULT, lambda _: Policies(permissions=grants))


def channel_of(role: str, address: str) -> Channel:
    return Channel(address, credentials=Credentials.of(tls=False, token=token(role)))


async def opened(
    role: str, address: str, runner: TopicRunner, topic: str = "", name: str = "p", on_behalf_of: Caller | None = None
) -> ReceivedAnswers:
    """What an opening of a producer is answered with."""
    async with channel_of(role, address) as channel:
        stream = channel.stream(PUBLISH)
        request = OpenRequest(1, topic or runner.name, runner.topic_id, name, on_behalf_of=on_behalf_of)
        await stream.write(PublishFrame(opens=[request]))
        return await anext(aiter(stream))


async def read(role: str, address: str, runner: TopicRunner) -> None:
    """Returns with the first frame that says where the end is."""
    async with channel_of(role, address) as channel:
        stream = channel.stream(READ)
        await stream.write(ReadControl(ReaderStart(runner.name, runner.topic_id, StartEdge.EARLIEST, 0), 1 << 20))  # type: ignore[arg-type]
        await anext(aiter(stream))


async def last_message(role: str, address: str, runner: TopicRunner) -> None:
    async with channel_of(role, address) as channel:
        request = LastMessageRequest(topic=runner.name, topic_id=runner.topic_id)
        await channel.call(LAST_MESSAGE, request, timeout_ms=TIMEOUT_MS)


async def producer_names(role: str, address: str, runner: TopicRunner) -> None:
    async with channel_of(role, address) as channel:
        request = ProducerNamesRequest(topic=runner.name, topic_id=runner.topic_id, producer_ids=[1])
        await channel.call(PRODUCER_NAMES, request, timeout_ms=TIMEOUT_MS)


async def test_producer_needs_the_right_to_produce(tmp_path: Path) -> None:
    """With the right it publishes."""
    async with owner(tmp_path) as (_, runner, address):
        for role in ("auditor", "keeper", "stranger"):
            [denied] = (await opened(role, address, runner)).denied
            assert isinstance(denied.error, PermissionDenied), role
        assert (await opened("root", address, runner, name="of root")).granted
        async with channel_of("importer", address) as channel:
            client = PublishClient(channel)
            granted = await client.open(runner, "p")
            assert len(await client.stored(granted, batch_of(granted, [1]))) == 1


async def test_topic_of_the_doors_is_used_by_superusers_alone(tmp_path: Path) -> None:
    """A role with all rights in the namespace can neither write what doors believe nor attach to a group's generation.
    Its requests of groups are answered."""
    async with owner(tmp_path) as (world, _, address):
        await grant(world, {"importer": ("produce", "consume", "admin")})
        runner = await world.serve(KAFKA_GROUPS)
        for loading in (True, False):
            [denied] = (await opened("importer", address, runner)).denied
            assert isinstance(denied.error, PermissionDenied)
            assert "belongs to the doors" in denied.error.message
            with pytest.raises(PermissionDenied):
                await read("importer", address, runner)
            with pytest.raises(PermissionDenied):
                await last_message("importer", address, runner)
            if loading:
                await until(lambda: "importer" in (runner.grants or {}), 30)
        assert (await opened("root", address, runner)).granted
        async with channel_of("importer", address) as channel:
            request = GroupRequest(topic=runner.name, topic_id=runner.topic_id, list=ListGroups())
            assert (await channel.call(ASK_GROUP, request, timeout_ms=TIMEOUT_MS)).HasField("listed")


async def test_producer_name_belongs_to_the_role_that_opened_it_first(tmp_path: Path) -> None:
    """Another role needs the right admin, or must be a superuser. Its error names the owning role."""
    async with owner(tmp_path) as (world, runner, address):
        assert (await opened("importer", address, runner)).granted
        await grant(world, {**GRANTS, "second": ("produce",), "keeper": ("produce", "admin")})
        await until(lambda: "second" in (runner.grants or {}), 30)
        [denied] = (await opened("second", address, runner)).denied
        assert isinstance(denied.error, PermissionDenied)
        assert "belongs to role importer" in denied.error.message
        for role in ("keeper", "root", "importer"):
            assert (await opened(role, address, runner)).granted, role
        assert internal_stats(runner)["producers"][0]["role"] == "importer"  # type: ignore[index]


@pytest.mark.hazard("foreign-producer-name")
@pytest.mark.parametrize(
    "name", ["dead-letters/" + "0f" * 16 + "/1", "redrive/a", "effects/a", "relay/a", "mirror/a", "kafka/a"]
)
async def test_names_of_the_services_producers_are_reserved(tmp_path: Path, name: str) -> None:
    """For a role with every right in the namespace, and one that a superuser states, as HTTP does. Names of programs
    belong to the first role that opens them; it also needs the right to consume, which programs have, so that a role
    that may only publish does not keep a program from its name."""
    async with owner(tmp_path) as (world, runner, address):
        rights = {"importer": ("produce", "consume", "admin"), "other": ("produce", "consume"), "web": ("produce",)}
        await grant(world, rights | {"boss": ("produce", "admin")})
        if name.startswith(PROGRAM_PREFIXES):
            for role in ("web", "boss"):
                [denied] = (await opened(role, address, runner, name=name)).denied
                assert isinstance(denied.error, PermissionDenied)
                assert f"begins with {name.partition('/')[0]}/ needs it besides produce" in denied.error.message
            assert (await opened("importer", address, runner, name=name)).granted
            [denied] = (await opened("other", address, runner, name=name)).denied
            assert "belongs to role importer" in denied.error.message
        for role, stated in (("importer", None), ("root", Caller("importer"))):
            if stated is None and name.startswith(PROGRAM_PREFIXES):
                continue
            [denied] = (await opened(role, address, runner, name=name, on_behalf_of=stated)).denied
            assert isinstance(denied.error, PermissionDenied)
            assert "belong to the services" in denied.error.message
        assert (await opened("root", address, runner, name=name)).granted
        assert (await opened("importer", address, runner, name=f"my-{name}")).granted


@pytest.mark.hazard("foreign-producer-name")
async def test_names_of_clients_of_kafka_belong_to_gateways(tmp_path: Path) -> None:
    """They are opened in mode epoched for a client of a gateway, by a superuser, for a role that may produce. Without
    one of these nothing is granted: a name of the services, or ids that skip to a higher epoch."""
    async with owner(tmp_path) as (_, runner, address):
        asked = OpenRequest(
            1, runner.name, runner.topic_id, "kafka/7", SequenceMode.EPOCHED, instance_id=InstanceId(b"x" * 16),
            on_behalf_of=Caller("importer"), client=GatewayClient(1),
        )  # fmt: skip

        async def answer(role: str, **changed: Any) -> ReceivedAnswers:
            async with channel_of(role, address) as channel:
                stream = channel.stream(PUBLISH)
                await stream.write(PublishFrame(opens=[asked._replace(**changed)]))
                return await anext(aiter(stream))

        refused: tuple[tuple[str, dict[str, Any]], ...] = (
            ("importer", {"on_behalf_of": None}), ("root", {"client": None}), ("root", {"producer_name": "p"}),
            ("root", {"producer_name": None}), ("root", {"mode": SequenceMode.MONOTONIC}),
            ("root", {"on_behalf_of": Caller("auditor")}),
        )  # fmt: skip
        for role, changed in refused:
            [denied] = (await answer(role, **changed)).denied
            assert isinstance(denied.error, PermissionDenied), changed
        assert (await answer("root")).granted
        assert internal_stats(runner)["producers"][0]["role"] == "importer"  # type: ignore[index]
        assert internal_stats(runner)["producers"][0]["mode"] == "epoched"  # type: ignore[index]


async def test_only_superusers_open_producers_for_others(tmp_path: Path) -> None:
    """Metadata services do so for HTTP callers: the name belongs to the caller, whose rights count."""
    async with owner(tmp_path) as (world, runner, address):
        [denied] = (await opened("importer", address, runner, on_behalf_of=Caller("auditor"))).denied
        assert isinstance(denied.error, PermissionDenied)
        assert (await opened("root", address, runner, on_behalf_of=Caller("importer"))).granted
        assert (await opened("importer", address, runner)).granted
        await grant(world, {**GRANTS, "second": ("produce",)})
        await until(lambda: "second" in (runner.grants or {}), 30)
        [denied] = (await opened("root", address, runner, on_behalf_of=Caller("second"))).denied
        assert isinstance(denied.error, PermissionDenied)
        assert (await opened("root", address, runner, on_behalf_of=Caller("operator", superuser=True))).granted


async def leased(role: str, address: str, runner: TopicRunner, stated: str, producer_id: int) -> LeaseProducerIdAnswer:
    """The lease of an id, 0: a new one, that a role asks for on behalf of another."""
    async with channel_of(role, address) as channel:
        request = LeaseProducerIdRequest(
            topic=runner.name, topic_id=runner.topic_id, producer_id=producer_id, request_id=stated.encode().ljust(16),
            on_behalf_of=OnBehalfOf(role=stated),
        )  # fmt: skip
        return await channel.call(LEASE_PRODUCER_ID, request, timeout_ms=TIMEOUT_MS)


async def test_lease_on_behalf_of_a_caller_belongs_to_that_caller(tmp_path: Path) -> None:
    """Metadata services ask so for HTTP callers: the caller's rights count, and only superusers may state one."""
    async with owner(tmp_path) as (world, runner, address):
        await grant(world, {**GRANTS, "second": ("produce",)})
        await until(lambda: "second" in (runner.grants or {}), 30)
        new = await leased("root", address, runner, "importer", 0)
        with pytest.raises(PermissionDenied, match="belongs to role importer"):
            await leased("root", address, runner, "second", new.producer_id)
        with pytest.raises(PermissionDenied, match="no right to produce"):
            await leased("root", address, runner, "auditor", 0)
        with pytest.raises(PermissionDenied, match="cannot act for role second"):
            await leased("importer", address, runner, "second", 0)
        assert (await leased("root", address, runner, "importer", new.producer_id)).generation == 1


async def test_reader_needs_the_right_to_consume(tmp_path: Path) -> None:
    """Also to get the last message and producer names."""
    async with owner(tmp_path) as (_, runner, address):
        for ask in (read, last_message, producer_names):
            for role in ("importer", "keeper", "stranger"):
                with pytest.raises(PermissionDenied):
                    await ask(role, address, runner)
            await ask("auditor", address, runner)
            await ask("root", address, runner)


async def test_calls_between_services_are_refused_to_clients(tmp_path: Path) -> None:
    """Statistics of all topics, assign, unload."""
    async with owner(tmp_path) as (_, _runner, address):
        for role, error in (("importer", PermissionDenied), ("keeper", PermissionDenied)):
            async with channel_of(role, address) as channel:
                with pytest.raises(error):
                    await channel.call(TOPIC_STATES, TopicStatesRequest(), timeout_ms=TIMEOUT_MS)
        async with Channel(address) as channel:
            with pytest.raises(Unauthenticated):
                await channel.call(TOPIC_STATES, TopicStatesRequest(), timeout_ms=TIMEOUT_MS)


async def test_rights_are_those_of_the_namespace_of_the_topic(tmp_path: Path) -> None:
    """The name in the request proves nothing: not that of another topic, nor one in a namespace of the caller."""
    async with owner(tmp_path) as (world, runner, address):
        namespaces, theirs = NamespaceStore(world.session), parse_namespace("public/theirs")
        await namespaces.create_namespace(theirs, Policies(permissions={"stranger": ("produce", "consume")}))
        for topic in ("public/theirs/flights", runner.name):
            [denied] = (await opened("stranger", address, runner, topic)).denied
            assert isinstance(denied.error, OncelogError)
            assert not denied.error.retriable


async def test_new_grant_is_effective_at_once(tmp_path: Path) -> None:
    """A refusal reads the record first."""
    async with owner(tmp_path) as (world, runner, address):
        assert (await opened("newcomer", address, runner)).denied
        await grant(world, GRANTS | {"newcomer": ("produce",)})
        await until(lambda: "newcomer" in (runner.grants or {}), DEADLINE_S, waiting_for="the owner to see it")
        runner._executor.grants = GRANTS  # as before its watch has told it
        assert (await opened("newcomer", address, runner)).granted


async def test_revoked_right_refuses_the_next_opening(tmp_path: Path) -> None:
    """Open streams continue until they end, as documented."""
    async with owner(tmp_path) as (world, runner, address), channel_of("importer", address) as channel:
        client = PublishClient(channel)
        granted = await client.open(runner, "p")
        await grant(world, {})
        await until(lambda: runner.grants == {}, DEADLINE_S, waiting_for="the owner to see it")
        assert (await opened("importer", address, runner)).denied
        assert len(await client.stored(granted, batch_of(granted, [1]))) == 1


@pytest.mark.parametrize("goes", ["away", "silent"])
async def test_pending_authorization_ends_with_its_stream(tmp_path: Path, goes: str) -> None:
    """A client that disconnects during a takeover, or ends its stream, leaves no task behind."""
    async with owner_world(tmp_path, security=secured(tmp_path)) as (world, channel):
        world.topics.update_nodes(StorageNodesUpdated(()))  # so that no takeover ends
        topic_id = await world.new_topic("slow")
        world.topics.assign(topic_id)
        runner = world.topics.find(topic_id)
        assert runner is not None
        async with channel_of("importer", channel.address) as own:
            stream = own.stream(PUBLISH)
            await stream.write(PublishFrame(opens=[OpenRequest(1, "public/default/slow", topic_id, "p")]))
            await until(lambda: runner.progress.waiting_count == 1, DEADLINE_S, waiting_for="the check")
            if goes == "silent":
                await stream.finish()
                async with asyncio.timeout(
                    LOADING_DEADLINE_MS / 2_000
                ):  # long before the check would give up by itself
                    assert [frame async for frame in stream] == []
        await until(lambda: not world.publish.streams, DEADLINE_S, waiting_for="the end of the stream")
        await until(lambda: runner.progress.waiting_count == 0, DEADLINE_S, waiting_for="the end of the check")


async def test_groups_are_of_roles_that_may_consume(tmp_path: Path) -> None:
    """Doors ask so for their clients: the client's right counts, and only superusers may state one."""
    async with owner_world(tmp_path, security=secured(tmp_path)) as (world, channel):
        await grant(world, GRANTS)
        runner = await world.serve(KAFKA_GROUPS)

        async def listed(role: str, stated: str) -> None:
            request = GroupRequest(
                topic=runner.name, topic_id=runner.topic_id, list=ListGroups(), on_behalf_of=OnBehalfOf(role=stated)
            )
            async with channel_of(role, channel.address) as own:
                await own.call(ASK_GROUP, request, timeout_ms=TIMEOUT_MS)

        await listed("root", "auditor")
        for role, stated in (("root", "importer"), ("root", "keeper"), ("importer", "auditor"), ("auditor", "auditor")):
            with pytest.raises(PermissionDenied):
                await listed(role, stated)
