"""The ACLs of the tree: every node belongs to the cluster's user alone, and a tree that was open is closed.

How a tree is closed while the cluster runs
- The ACL of the root tells what holds. Where it is the user's alone, the tree is closed. Where it is another one (open
  to the world, or of a former user), processes give new nodes both ACLs: processes that have not been restarted yet
  with the credentials must be able to read them.
- Each process registers itself by an ephemeral node, so its ACL tells whether that process has the credentials. Once
  all of them have had them for READY_LOOKS, which a process that drains unregistered needs, a metadata service closes
  the root and then node by node. Processes see the root and make closed nodes; later passes find what they made before.
- Each step may be repeated, by any number of services at once, and after an interruption: it sets what is to be.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.security import ACL

from oncelog.core.errors import OncelogError
from oncelog.stores import paths
from oncelog.stores.zookeeper_connection import RequestInterrupted, ZooKeeperConnection

logger = logging.getLogger(__name__)

#: How often a process looks whether the tree has been closed, and a metadata service whether it can be.
FOLLOW_S = 2.0
#: Looks in a row at which all processes have the credentials, before the tree is closed: a minute.
READY_LOOKS = 30
#: Passes after the first one, in looks: most processes have seen the closed root after three. One that was stopped for
#: longer may still make an open node.
LATER_PASSES_LOOKS = (3, 30, 300)
#: Requests under way of one pass.
AT_ONCE = 64
#: Nodes that ZooKeeper makes itself, and leaves open. `/zookeeper/config` can be changed by nobody.
SYSTEM_NODES = ("/", "/zookeeper", "/zookeeper/quota")


class TreeAcls:
    """Of one session. own: the ACL of the cluster's user. root: the full path of the tree."""

    def __init__(self, connection: ZooKeeperConnection, root: str, own: ACL, *, look_s: float = FOLLOW_S) -> None:
        self._connection = connection
        self._client: KazooClient = connection.client
        self._root = root
        self._own = [own]
        self._look_s = look_s
        self.closed = True

    # --- every process

    async def settle(self) -> None:
        """Decide with which ACL nodes are made. Raises PermissionDenied where the tree is another user's."""
        found = await self._acl(self._root)
        self.closed = found is None or found == self._own
        self._client.default_acl = (
            self._own if self.closed else self._own + [a for a in found or () if a not in self._own]
        )

    async def follow(self) -> None:
        """Return once the tree is closed; until then, look again and again."""
        while not self.closed:
            await asyncio.sleep(self._look_s)
            try:
                await self.settle()
            except (OncelogError, RequestInterrupted) as error:
                logger.debug("the ACL of %s cannot be read now: %r", self._root, error)

    # --- metadata services

    async def guard(self, *, whole_ensemble: bool) -> None:
        """Close the tree as soon as all processes have the credentials, then look for open nodes a few times more.

        whole_ensemble: no other program uses this ensemble, so the nodes above the tree are closed, too.
        """
        await self._until_ready()
        await self._pass(whole_ensemble=whole_ensemble)
        for looks in LATER_PASSES_LOOKS:
            await asyncio.sleep(looks * self._look_s)
            await self._pass(whole_ensemble=whole_ensemble)

    async def _until_ready(self) -> None:
        """Return once the tree is closed already, or all processes have the credentials."""
        told: list[str] = []
        ready = 0
        while not self.closed and ready < READY_LOOKS:
            try:
                waiting = await self.without_credentials()
            except (OncelogError, RequestInterrupted) as error:
                logger.warning("the ACLs in ZooKeeper cannot be looked at now: %s", error)
                waiting = told
            ready = 0 if waiting else ready + 1
            if waiting and waiting != told:
                told = waiting
                fields = {"without_credentials": waiting[:10], "count": len(waiting)}
                logger.warning("the tree in ZooKeeper stays open until all have credentials", extra={"fields": fields})
            await asyncio.sleep(self._look_s)

    async def _pass(self, *, whole_ensemble: bool) -> None:
        while True:
            try:
                changed = await self.close_tree(whole_ensemble=whole_ensemble)
            except (OncelogError, RequestInterrupted) as error:
                logger.warning("closing the tree in ZooKeeper was interrupted, trying again: %s", error)
                await asyncio.sleep(self._look_s)
                continue
            if changed:
                fields = {"nodes": changed, "root": self._root}
                logger.info("nodes in ZooKeeper were closed to everybody else", extra={"fields": fields})
            return

    async def without_credentials(self) -> list[str]:
        """The registrations of processes that do not have the credentials of the cluster's user."""
        found: list[str] = []
        for folder in (paths.OWNERS, paths.STORAGE, paths.METADATA):
            for name in await self._children(self._root + folder):
                acl = await self._acl(f"{self._root}{folder}/{name}")
                if acl is not None and self._own[0] not in acl:
                    found.append(f"{folder}/{name}")
        return found

    async def close_tree(self, *, whole_ensemble: bool) -> int:
        """Give every node of the tree, the root first, to the cluster's user alone. Returns how many were not."""
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
        """The nodes below the root, the parents before their children, some at a time."""
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
