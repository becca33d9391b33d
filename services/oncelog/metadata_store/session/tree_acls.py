"""The ACLs of the tree: every node belongs only to the cluster's user. A tree that was open is closed while in use.

How a tree is closed while the cluster runs
- The ACL of the root decides. If it names only the cluster's user, the tree is closed. If it is another one (open to
  the world, or of a former user), processes give new nodes both ACLs, because processes that have not been restarted
  with the credentials yet must be able to read them.
- Each process registers with an ephemeral node, so the node's ACL shows whether that process has the credentials. Once
  all of them have had the credentials for READY_LOOKS, which covers a process that is draining and no longer
  registered, a metadata service closes the root and then node by node. Other processes notice the closed root and
  create closed nodes from then on. Later passes find the nodes that they created before.
- Each step may be repeated, by any number of services at once, and after an interruption: it sets the final state.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.security import ACL

from oncelog.core.errors import OncelogError
from oncelog.metadata_store.session import paths
from oncelog.metadata_store.session.zookeeper_connection import RequestInterrupted, ZooKeeperConnection

logger = logging.getLogger(__name__)

#: Interval at which processes check whether the tree is closed, and metadata services whether it can be closed.
FOLLOW_S = 2.0
#: Checks in a row at which all processes must have the credentials before the tree is closed: a minute.
READY_LOOKS = 30
#: Later passes, in checks after the first pass: most processes notice the closed root within three. A process that was
#: paused for longer may still create an open node.
LATER_PASSES_LOOKS = (3, 30, 300)
#: Concurrent requests of one pass.
AT_ONCE = 64
#: Nodes that ZooKeeper creates itself and leaves open. Nobody can change `/zookeeper/config`.
SYSTEM_NODES = ("/", "/zookeeper", "/zookeeper/quota")


class TreeAcls:
    """The ACLs of one session. own: the ACL of the cluster's user. root: the full path of the tree."""

    def __init__(self, connection: ZooKeeperConnection, root: str, own: ACL, *, look_s: float = FOLLOW_S) -> None:
        self._connection = connection
        self._client: KazooClient = connection.client
        self._root = root
        self._own = [own]
        self._look_s = look_s
        #: below the tree's root: the root of the era in which processes register
        self.era_root = ""
        self.closed = True

    # --- every process

    async def settle(self) -> None:
        """Decide the ACL of new nodes. Raises PermissionDenied if the tree belongs to another user."""
        found = await self._acl(self._root)
        self.closed = found is None or found == self._own
        self._client.default_acl = (
            self._own if self.closed else self._own + [a for a in found or () if a not in self._own]
        )

    async def follow(self) -> None:
        """Check periodically; return once the tree is closed."""
        while not self.closed:
            await asyncio.sleep(self._look_s)
            try:
                await self.settle()
            except (OncelogError, RequestInterrupted) as error:
                logger.debug("cannot read the ACL of %s now: %r", self._root, error)

    # --- metadata services

    async def guard(self, *, whole_ensemble: bool) -> None:
        """Close the tree as soon as all processes have the credentials, then look for open nodes several times.

        whole_ensemble: no other program uses this ensemble, so the nodes above the tree are closed, too.
        """
        await self._until_ready()
        await self._pass(whole_ensemble=whole_ensemble)
        for looks in LATER_PASSES_LOOKS:
            await asyncio.sleep(looks * self._look_s)
            await self._pass(whole_ensemble=whole_ensemble)

    async def _until_ready(self) -> None:
        """Return once the tree is already closed, or all processes have the credentials."""
        logged: list[str] = []
        ready = 0
        while not self.closed and ready < READY_LOOKS:
            try:
                waiting = await self.without_credentials()
            except (OncelogError, RequestInterrupted) as error:
                logger.warning("cannot read the ACLs in ZooKeeper now; will retry: %s", error)
                waiting = logged
            ready = 0 if waiting else ready + 1
            if waiting and waiting != logged:
                logged = waiting
                fields = {"without_credentials": waiting[:10], "count": len(waiting)}
                logger.warning(
                    "the tree in ZooKeeper stays open until all processes have credentials", extra={"fields": fields}
                )
            await asyncio.sleep(self._look_s)

    async def _pass(self, *, whole_ensemble: bool) -> None:
        while True:
            try:
                changed = await self.close_tree(whole_ensemble=whole_ensemble)
            except (OncelogError, RequestInterrupted) as error:
                logger.warning("closing the tree in ZooKeeper was interrupted; will retry: %s", error)
                await asyncio.sleep(self._look_s)
                continue
            if changed:
                fields = {"nodes": changed, "root": self._root}
                logger.info("closed nodes in ZooKeeper to all other users", extra={"fields": fields})
            return

    async def without_credentials(self) -> list[str]:
        """The registrations of processes without the credentials of the cluster's user."""
        found: list[str] = []
        for folder in (paths.OWNERS, paths.STORAGE, paths.METADATA):
            at = self._root + self.era_root + folder
            for name in await self._children(at):
                acl = await self._acl(f"{at}/{name}")
                if acl is not None and self._own[0] not in acl:
                    found.append(f"{folder}/{name}")
        return found

    async def close_tree(self, *, whole_ensemble: bool) -> int:
        """Give every node of the tree, the root first, only to the cluster's user. Returns how many were changed."""
        changed = await self._close(self._root)
        slots = asyncio.Semaphore(AT_ONCE)

        async def close(path: str) -> int:
            async with slots:
                return await self._close(path)

        async for level in self._levels():
            changed += sum(await asyncio.gather(*map(close, level)))
        if whole_ensemble:
            for path in (*above(self._root), *SYSTEM_NODES):
                changed += await self._close(path)
        self._client.default_acl = self._own
        self.closed = True
        return changed

    async def _levels(self) -> AsyncIterator[list[str]]:
        """The nodes below the root, parents before their children, in batches."""
        waiting = [self._root]
        while waiting:
            parents, waiting = waiting[:AT_ONCE], waiting[AT_ONCE:]
            found = await asyncio.gather(*map(self._children, parents))
            level = [f"{parent}/{name}" for parent, names in zip(parents, found, strict=True) for name in names]
            waiting += level
            if level:
                yield level

    async def _close(self, path: str) -> int:
        acl = await self._acl(path)
        if acl is None or acl == self._own:
            return 0
        try:
            await self._ask(lambda: self._client.set_acls_async(path, self._own))
        except NoNodeError:
            return 0
        return 1

    async def _acl(self, path: str) -> list[ACL] | None:
        try:
            acls, _ = await self._ask(lambda: self._client.get_acls_async(path))
        except NoNodeError:
            return None
        return list(acls)

    async def _children(self, path: str) -> list[str]:
        try:
            names: list[str] = await self._ask(lambda: self._client.get_children_async(path))
        except NoNodeError:
            return []
        return names

    async def _ask(self, request: Callable[[], Any]) -> Any:
        await self._connection.until_connected()
        return await self._connection.issue(request)


def above(root: str) -> tuple[str, ...]:
    """The paths between `/` and the root."""
    parts = root.strip("/").split("/")[:-1]
    return tuple("/" + "/".join(parts[:count]) for count in range(1, len(parts) + 1))
