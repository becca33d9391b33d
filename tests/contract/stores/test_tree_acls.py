"""The tree in a real ZooKeeper belongs only to the cluster's user. A tree that was open is closed while in use."""

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.security import ACL

from oncelog.core.errors import InvalidArgument, PermissionDenied
from oncelog.core.ids import Incarnation, LedgerId, TopicId
from oncelog.core.ledger.metadata import LedgerMetadata
from oncelog.core.names import NamespaceName, parse_topic
from oncelog.core.records.records import ABSENT_VERSION
from oncelog.core.records.status import WriteStatus
from oncelog.metadata_store.records.cluster_store import ClusterStore
from oncelog.metadata_store.records.ledger_store import LedgerStore
from oncelog.metadata_store.records.policies import Policies
from oncelog.metadata_store.records.policy_store import CLUSTER, PolicyStore
from oncelog.metadata_store.records.registry import LiveMetadata, LiveOwner, Registry
from oncelog.metadata_store.records.topic_store import TopicStore
from oncelog.metadata_store.session import paths
from oncelog.metadata_store.session.tree_acls import TreeAcls, above
from oncelog.metadata_store.session.zookeeper import ZooKeeperSession
from oncelog.metadata_store.session.zookeeper_connection import ZooKeeperAccess
from oncelog.metadata_store.session.zookeeper_users import ZooKeeperUser, read_users
from oncelog.runtime.zookeeper_server import ZooKeeperServer
from tests.cluster.until import until
from tests.contract.stores.store_backends import DEADLINE_S

pytestmark = pytest.mark.asyncio

USER = ZooKeeperUser("oncelog", "a password of the tests")
FORMER = ZooKeeperUser("oncelog", "the password before that one")
LOOK_S = 0.02


class Ensemble:
    """A server, and sessions with it. `anonymous` is any client that reaches its port."""

    def __init__(self, server: ZooKeeperServer, stack: AsyncExitStack) -> None:
        self.server = server
        self._stack = stack

    async def open(self, *users: ZooKeeperUser) -> ZooKeeperSession:
        session = await ZooKeeperSession.connect(self.server.address, access=ZooKeeperAccess(users=users))
        if session.tree_acls is not None:
            session.tree_acls._look_s = LOOK_S
        self._stack.push_async_callback(session.close)
        return session

    async def acls(self, *users: ZooKeeperUser) -> dict[str, list[ACL]]:
        """{path: its ACL} of every node, read as these users."""
        return await asyncio.to_thread(self._acls, users)

    def _acls(self, users: tuple[ZooKeeperUser, ...]) -> dict[str, list[ACL]]:
        client = self.client(*users)
        found: dict[str, list[ACL]] = {}
        waiting = ["/"]
        while waiting:
            path = waiting.pop()
            found[path] = client.get_acls(path)[0]
            waiting += [f"{path.rstrip('/')}/{name}" for name in client.get_children(path)]
        client.stop()
        client.close()
        return found

    def client(self, *users: ZooKeeperUser) -> KazooClient:
        client = KazooClient(self.server.address, auth_data=[("digest", user.credentials) for user in users] or None)
        client.start(timeout=DEADLINE_S)
        return client


@asynccontextmanager
async def ensemble(tmp_path: Path) -> AsyncIterator[Ensemble]:
    async with AsyncExitStack() as stack:
        server = await ZooKeeperServer.start(tmp_path / "zookeeper")
        stack.push_async_callback(server.stop)
        yield Ensemble(server, stack)


async def use(session: ZooKeeperSession, number: int) -> None:
    """Create nodes of every kind: folders, records, ephemerals, nodes of transactions."""
    await ClusterStore(session).establish()
    registry, topics = Registry(session), TopicStore(session)
    incarnation = Incarnation(f"{number:032x}")
    await registry.register_owner(LiveOwner(incarnation, "host", {"grpc": 1}, 0)).establish()
    await registry.register_metadata(LiveMetadata("host", {"grpc": 1})).establish()
    await topics.create(parse_topic(f"flights-{number}"))
    ledger = LedgerMetadata(LedgerId(number), TopicId("ab" * 16), (incarnation,), ack_quorum=1)
    assert (await LedgerStore(session).write(ledger, version=ABSENT_VERSION)).status is WriteStatus.OK
    await PolicyStore(session).change(CLUSTER, lambda _: Policies(deduplication=number % 2 == 0))
    await PolicyStore(session).change(NamespaceName("public", "default"), lambda _: Policies(auto_create_topics=True))


def refused_everywhere(client: KazooClient, paths: list[str]) -> None:
    """Every way to read or change a node."""
    for path in paths:
        attempts: list[Any] = [
            client.get,
            client.get_children,
            lambda p: client.set(p, b'{"format": 1}'),
            lambda p: client.create(f"{p.rstrip('/')}/planted", b""),
            client.get_acls,
            lambda p: client.set_acls(p, [USER.acl]),
        ]
        if path != "/" and not path.startswith("/zookeeper"):  # those ZooKeeper lets nobody delete
            attempts.append(client.delete)
        for attempt in attempts:
            try:
                attempt(path)
            except NoAuthError:
                continue
            raise AssertionError(f"{path} is open")


async def closed(ensemble: Ensemble, *users: ZooKeeperUser, whole: bool = False) -> list[str]:
    """The paths of the tree, all closed to other users."""
    acls = await ensemble.acls(*users)
    tree = [path for path in acls if path.startswith("/oncelog") or (whole and path != "/zookeeper/config")]
    assert len(tree) > 20
    assert {path: acls[path] for path in tree if acls[path] != [users[0].acl]} == {}
    return tree


async def test_every_node_of_a_used_tree_belongs_only_to_the_user(tmp_path: Path) -> None:
    """Root, folders, records, ephemerals: every access without credentials, or with wrong ones, is refused."""
    async with ensemble(tmp_path) as zookeeper:
        session = await zookeeper.open(USER)
        await use(session, 1)
        assert session.tree_acls is not None
        await session.tree_acls.close_tree(whole_ensemble=True)
        tree = await closed(zookeeper, USER, whole=True)
        for users in ((), (ZooKeeperUser("oncelog", "a wrong password, as long"),)):
            stranger = zookeeper.client(*users)
            await asyncio.to_thread(refused_everywhere, stranger, tree)
            await asyncio.to_thread(stranger.stop)
            stranger.close()


async def test_wrong_credentials_are_refused_at_the_start(tmp_path: Path) -> None:
    """The error names the setting. Waiting would not help."""
    async with ensemble(tmp_path) as zookeeper:
        await ClusterStore(await zookeeper.open(USER)).establish()
        with pytest.raises(PermissionDenied, match="ONCELOG_ZOOKEEPER_AUTH_FILE"):
            await zookeeper.open(FORMER)
        with pytest.raises(PermissionDenied, match="ONCELOG_ZOOKEEPER_AUTH_FILE"):
            await ClusterStore(await zookeeper.open()).require()


@pytest.mark.parametrize("before", [(), (FORMER,)], ids=["open", "another password"])
async def test_tree_changes_its_user_while_the_cluster_runs(tmp_path: Path, before: tuple[ZooKeeperUser, ...]) -> None:
    """Processes are restarted one by one. Those with the new credentials and those without serve side by side, and the
    tree is closed when the last process has them."""
    async with ensemble(tmp_path) as zookeeper:
        old = await zookeeper.open(*before)
        await use(old, 1)
        new = await zookeeper.open(USER, *before)
        await use(new, 2)
        assert new.tree_acls is not None
        guarding = asyncio.ensure_future(new.tree_acls.guard(whole_ensemble=False))
        # Each reads and changes what the other has made.
        assert set((await Registry(old).owners.live()).keys()) == set((await Registry(new).owners.live()).keys())
        await PolicyStore(old).change(CLUSTER, lambda _: Policies(deduplication=True))
        assert [name.split("/")[1] for name in await new.tree_acls.without_credentials()] == ["owners", "metadata"]
        acls = new.tree_acls
        assert not acls.closed
        in_era = old.below("/era-2")
        await in_era.ensure_path(paths.METADATA)
        await Registry(in_era).register_metadata(LiveMetadata("here", {"grpc": 1})).establish()
        acls.era_root = "/era-2"
        assert [name.split("/")[1] for name in await acls.without_credentials()] == ["metadata"], "of its own era"
        acls.era_root = ""
        await old.close()
        await until(lambda: acls.closed, DEADLINE_S)
        await use(new, 3)

        async def all_closed() -> bool:
            acls = await zookeeper.acls(USER)
            return all(acl == [USER.acl] for path, acl in acls.items() if path.startswith("/oncelog"))

        await until(all_closed, DEADLINE_S, waiting_for="the later passes")
        guarding.cancel()
        with pytest.raises(PermissionDenied):
            await PolicyStore(await zookeeper.open()).read(CLUSTER)


async def test_interrupted_closing_is_completed_by_another_process(tmp_path: Path) -> None:
    """After the root, each node is a step of its own; which nodes were done does not matter."""
    async with ensemble(tmp_path) as zookeeper:
        await use(await zookeeper.open(), 1)
        first = await zookeeper.open(USER)
        assert first.tree_acls is not None
        await first.tree_acls._close("/oncelog")
        await first.close()
        second = await zookeeper.open(USER)
        assert second.tree_acls is not None
        assert second.tree_acls.closed
        assert await second.tree_acls.close_tree(whole_ensemble=False) > 20
        await closed(zookeeper, USER)
        assert await second.tree_acls.close_tree(whole_ensemble=False) == 0


async def test_paths_above_a_root_are_named_from_the_top() -> None:
    """They are closed if no other program uses the ensemble."""
    assert above("/teams/orders/oncelog") == ("/teams", "/teams/orders")
    assert above("/oncelog") == ()


async def test_acl_names_the_first_user() -> None:
    """By digest, and not by all users of the session: a former password must not open new nodes."""
    assert USER.acl != FORMER.acl
    assert isinstance(TreeAcls, type)
    assert len(base64.b64decode(USER.acl.id.id.partition(":")[2])) == 20


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "0 lines"),
        (b"oncelog", "not user:password"),
        (b":a password that is long enough", "not user:password"),
        (b"oncelog:short", "at least 16 characters"),
        (b"oncelog:" + bytes([0xC3, 0xA9]) * 20, "ASCII"),
        (b"a:0123456789abcdef\n" * 5, "5 lines"),
    ],
)
async def test_users_file_is_checked_at_the_start(tmp_path: Path, content: bytes, complaint: str) -> None:
    """The error does not contain the file's content."""
    path = tmp_path / "auth"
    path.write_bytes(content)
    with pytest.raises(InvalidArgument, match=complaint) as caught:
        read_users(path, "ONCELOG_ZOOKEEPER_AUTH_FILE")
    assert "0123456789abcdef" not in caught.value.message
    with pytest.raises(InvalidArgument, match="cannot read"):
        read_users(tmp_path / "missing", "ONCELOG_ZOOKEEPER_AUTH_FILE")


async def test_users_file_names_the_present_user_first(tmp_path: Path) -> None:
    """Passwords may hold colons; blank lines do not count."""
    path = tmp_path / "auth"
    path.write_text("\noncelog:a:password:with colons\nformer:0123456789abcdef\n\n")
    assert read_users(path, "x") == (("oncelog", "a:password:with colons"), ("former", "0123456789abcdef"))
