"""Policies of the cluster, of namespaces and of topics. The nearest level that sets a policy decides.

Rules
- The levels of a topic are its own, then its namespace's, then the cluster's. A partition of a partitioned topic has
  one more: after its own policies come those of the partitioned topic, so that these hold for all of its partitions,
  also for later ones.
- The grants of a namespace to roles are among its policies. Rights are checked against the current grants (`require`).
- A tag identifies one state of a level's policies, so that a change can be conditional on what its caller has read.
- A topic's policies are stored under its id, so a new topic of the same name has none. A namespace exists if its node
  exists; NamespaceStore creates it, this module never does.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection
from dataclasses import replace
from enum import Enum
from zlib import crc32

from oncelog.core.access import Caller, Right, require
from oncelog.core.errors import InvalidArgument, NamespaceNotFound, PreconditionFailed, StoreUnavailable
from oncelog.core.formats.note import VALUE_BYTES_MAX
from oncelog.core.ids import TopicId
from oncelog.core.names import NamespaceName, TopicName
from oncelog.core.records.records import ABSENT_VERSION
from oncelog.core.records.status import WriteStatus
from oncelog.metadata_store.records.namespace_store import missing_namespace, note_missing_namespace
from oncelog.metadata_store.records.policies import (
    CLOSING_BYTES_MAX,
    EffectivePolicies,
    Policies,
    PolicySource,
    decode_policies,
    encode_policies,
    nearest,
)
from oncelog.metadata_store.records.topic_store import TopicStore
from oncelog.metadata_store.session import paths
from oncelog.metadata_store.session.shared_reads import SharedReads
from oncelog.metadata_store.session.store_session import StoreSession, Versioned, WriteResult, create_or_write
from oncelog.metadata_store.session.watch import PathsWatch, SharedNodes


class ClusterScope(Enum):
    CLUSTER = "cluster"


CLUSTER = ClusterScope.CLUSTER
#: Levels that many topics have in common.
_SHARED = (PolicySource.PARTITIONED_TOPIC, PolicySource.NAMESPACE, PolicySource.CLUSTER)
#: The level of policies: the cluster, a namespace or a topic.
Scope = ClusterScope | NamespaceName | TopicId


class PolicyStore:
    def __init__(self, session: StoreSession) -> None:
        self._session = session
        #: policies above the topics', which all watches of this process follow together
        self._shared = SharedNodes(session)
        #: thousands of topics that are created at the same time, or clients that arrive, need the same policies
        self._present = SharedReads(self.read)

    async def read(self, scope: Scope) -> Versioned[Policies]:
        """The policies after a sync. Where none was ever set: empty ones, at ABSENT_VERSION.

        Raises NamespaceNotFound, StoreUnavailable, CorruptEntry.
        """
        node = await self._session.read(_path(scope))
        if node is None and isinstance(scope, NamespaceName):
            raise await missing_namespace(self._session, scope)
        return (
            Versioned(Policies(), ABSENT_VERSION)
            if node is None
            else Versioned(decode_policies(node.data, _path(scope)), node.version)
        )

    async def write(self, scope: Scope, policies: Policies, *, version: int) -> WriteResult:
        """One compare-and-set from `version` as read."""
        assert not (isinstance(scope, NamespaceName) and version == ABSENT_VERSION), "NamespaceStore creates namespaces"
        return await create_or_write(self._session, _path(scope), encode_policies(policies), version=version)

    async def change(
        self, scope: Scope, change: Callable[[Policies], Policies], *, tags: Collection[str] | None = None
    ) -> Versioned[Policies]:
        """Apply `change` to the present policies, again if another write is faster. Returns the stored policies.

        A change that changes nothing is written, too: an earlier one may be written and not noted (`noting_session`).

        `change` must be idempotent: after a lost reply it may be applied to its own result.
        tags: the present policies must have one of these tags; None: any.
        Raises NamespaceNotFound, PreconditionFailed, StoreUnavailable, InvalidArgument if the policies have no room.
        """
        #: what may be written already, because a reply was lost
        in_doubt: Policies | None = None
        while True:
            stored = await self._read_to_change(scope)
            if tags is not None and stored.value != in_doubt and tag_of(stored) not in tags:
                await self._session.note([_path(scope)])  # so that what the caller reads now is noted
                message = f"these policies have changed: their tag is now {tag_of(stored)}; read them again"
                raise PreconditionFailed(message)
            changed = change(stored.value)
            if changed == stored.value and stored.version == ABSENT_VERSION:
                return stored
            _require_room(scope, stored.value, changed)
            written = await self.write(scope, changed, version=stored.version)
            if written.status is WriteStatus.OK:
                return Versioned(changed, written.version)
            if written.status is WriteStatus.UNKNOWN:
                in_doubt = changed

    async def _read_to_change(self, scope: Scope) -> Versioned[Policies]:
        try:
            return await self.read(scope)
        except NamespaceNotFound:
            assert isinstance(scope, NamespaceName)
            await note_missing_namespace(self._session, scope)
            raise

    async def require(self, caller: Caller, namespace: NamespaceName, *rights: Right) -> None:
        """Raises PermissionDenied unless the caller has any of the rights now, after a sync.

        Also for a namespace that does not exist, so that a caller without rights cannot find out whether it exists.
        """
        if caller.superuser:
            return
        try:
            grants = (await self._present.get(namespace)).value.permissions
        except NamespaceNotFound:
            grants = {}
        require(caller, grants, *rights, what=f"namespace {namespace}")

    async def effective(self, namespace: NamespaceName) -> EffectivePolicies:
        """The effective policies of a namespace, with their sources. Raises NamespaceNotFound."""
        return await self._nearest([(namespace, PolicySource.NAMESPACE), (CLUSTER, PolicySource.CLUSTER)])

    async def effective_of(self, name: TopicName, topic_id: TopicId) -> EffectivePolicies:
        """The effective policies of the topic with that name and id, with their sources. Raises NamespaceNotFound."""
        return await self._nearest(await self._levels(name, topic_id))

    async def watch(self, name: TopicName, topic_id: TopicId) -> AsyncGenerator[EffectivePolicies, None]:
        """The effective policies of a topic now, and again whenever one of its levels may have changed.

        An item may equal the one before. Raises StoreUnavailable once the session is closed, CorruptEntry.
        """
        levels = {_path(scope): source for scope, source in await self._levels_once_answered(name, topic_id)}
        for path, source in levels.items():
            if source in _SHARED:
                self._shared.add(path)
        async for nodes in PathsWatch(self._session, tuple(levels), self._shared):
            found = [(path, source) for path, source in levels.items() if path in nodes]
            yield nearest([(decode_policies(nodes[path].data, path), source) for path, source in found])

    async def _levels(self, name: TopicName, topic_id: TopicId) -> list[tuple[Scope, PolicySource]]:
        """The levels of a topic, nearest first.

        They do not change while the topic exists: a partition is created only under a partitioned topic, and that name
        points to nothing else until the last partition is deleted.
        """
        levels: list[tuple[Scope, PolicySource]] = [(topic_id, PolicySource.TOPIC)]
        if name.partition is not None:
            whole = await TopicStore(self._session).find(replace(name, partition=None))
            if whole is not None and whole.value.partitions:
                levels.append((whole.value.topic_id, PolicySource.PARTITIONED_TOPIC))
        return [*levels, (name.namespace_name, PolicySource.NAMESPACE), (CLUSTER, PolicySource.CLUSTER)]

    async def _levels_once_answered(self, name: TopicName, topic_id: TopicId) -> list[tuple[Scope, PolicySource]]:
        while True:
            try:
                return await self._levels(name, topic_id)
            except StoreUnavailable:
                # The failed call took its whole timeout, so retry without a pause.
                if self._session.closed:
                    raise

    async def _nearest(self, levels: list[tuple[Scope, PolicySource]]) -> EffectivePolicies:
        stored = await asyncio.gather(*(self._present.get(scope) for scope, _ in levels))
        return nearest([(one.value, source) for one, (_, source) in zip(stored, levels, strict=True)])


def tag_of(stored: Versioned[Policies]) -> str:
    """The tag of these policies: letters, digits and `-`. It is another one after each change.

    The version alone is not enough: a namespace that is deleted and created again counts from 0 (hazard
    recreated-topic).
    """
    if stored.version == ABSENT_VERSION:
        return "none"
    return f"{stored.version}-{crc32(encode_policies(stored.value)):08x}"


def _require_room(scope: Scope, former: Policies, changed: Policies) -> None:
    """A restore that closes rights adds a field, and what has no note then is lost by the next one (hazard
    no-room-to-close). What makes the policies smaller is never refused. Raises InvalidArgument."""
    size, limit = len(encode_policies(changed)), VALUE_BYTES_MAX - CLOSING_BYTES_MAX
    if size > limit and size > len(encode_policies(former)):
        where = "the cluster" if isinstance(scope, ClusterScope) else scope
        raise InvalidArgument(
            f"the policies of {where} would have {size} bytes with their grants, and the limit is {limit}: revoke "
            "grants that are not needed, or use another namespace",
            field="policies",
            limit=limit,
        )


def _path(scope: Scope) -> str:
    if isinstance(scope, ClusterScope):
        return paths.CLUSTER_POLICIES
    if isinstance(scope, NamespaceName):
        return paths.namespace_policies(scope)
    return paths.topic_policies(scope)
