"""Policies of the cluster, of namespaces and of topics: the nearest that says something wins.

Rules
- The levels of a topic are its own, then its namespace's, then the cluster's. A part of a partitioned topic has one
  more: after its own policies come those of the partitioned topic, so that what is set there holds for all its parts,
  also for parts that are made later.
- A policy that is not set (None) says nothing; it is not "false".
- The effective value is always told with its source, so that nobody has to guess why a topic behaves as it does.
- Fields that this version does not know are kept as they are when it writes the record.
- What a namespace grants to roles is among its policies. Only a right that is there now is a right (`require`).
- A mark tells one state of a level's policies from another, so that a change can rest on what its caller has read.
- A topic's policies lie under its id: a topic deleted and created anew starts without. A namespace's node is its
  existence; it is made by NamespaceStore, never here.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Generic, TypeVar
from zlib import crc32

from oncelog.core.access import Caller, Grants, Right, require
from oncelog.core.coordination.id_claim import ABSENT_VERSION
from oncelog.core.errors import NamespaceNotFound, PreconditionFailed, StoreUnavailable
from oncelog.core.ids import TopicId
from oncelog.core.names import NamespaceName, TopicName
from oncelog.core.store_status import WriteStatus
from oncelog.stores import paths
from oncelog.stores.json_records import decode_record, encode_record
from oncelog.stores.store_session import StoreSession, Versioned, WriteResult, create_or_write
from oncelog.stores.topic_store import TopicStore
from oncelog.stores.watch import PathsWatch

T = TypeVar("T")


class PolicySource(Enum):
    """Whose policy is in effect."""

    TOPIC = "topic"
    #: of the partitioned topic of which this topic is a part
    PARTITIONED_TOPIC = "partitioned_topic"
    NAMESPACE = "namespace"
    CLUSTER = "cluster"
    DEFAULT = "default"


class ClusterScope(Enum):
    CLUSTER = "cluster"


CLUSTER = ClusterScope.CLUSTER
#: Whose policies: the cluster's, a namespace's or a topic's.
Scope = ClusterScope | NamespaceName | TopicId


@dataclass(frozen=True, slots=True)
class Policies:
    """deduplication: judge batches by sequence id. auto_create_topics: a topic is made when first used."""

    deduplication: bool | None = None
    auto_create_topics: bool | None = None
    #: who may do what in a namespace; there alone
    permissions: Grants = field(default_factory=dict)
    #: Fields of a later version, kept as read.
    further: Mapping[str, object] = field(default_factory=dict)


#: What holds where no policy says anything.
DEFAULTS = Policies(deduplication=True, auto_create_topics=True)
_NAMES = ("deduplication", "auto_create_topics")


@dataclass(frozen=True, slots=True)
class Effective(Generic[T]):
    value: T
    source: PolicySource


@dataclass(frozen=True, slots=True)
class EffectivePolicies:
    deduplication: Effective[bool]
    auto_create_topics: Effective[bool]
    #: those of the namespace
    grants: Grants = field(default_factory=dict)


class PolicyStore:
    def __init__(self, session: StoreSession) -> None:
        self._session = session

    async def read(self, scope: Scope) -> Versioned[Policies]:
        """The policies after a sync; none, at ABSENT_VERSION, where nothing was ever set.

        Raises NamespaceNotFound, StoreUnavailable, CorruptEntry.
        """
        node = await self._session.read(_path(scope))
        if node is None and isinstance(scope, NamespaceName):
            raise NamespaceNotFound(f"there is no namespace {scope}: create it", namespace=str(scope))
        return (
            Versioned(Policies(), ABSENT_VERSION)
            if node is None
            else Versioned(decode_policies(node.data), node.version)
        )

    async def write(self, scope: Scope, policies: Policies, *, version: int) -> WriteResult:
        """One compare-and-set from `version` as read."""
        assert not (isinstance(scope, NamespaceName) and version == ABSENT_VERSION), "NamespaceStore creates namespaces"
        return await create_or_write(self._session, _path(scope), encode_policies(policies), version=version)

    async def change(
        self, scope: Scope, change: Callable[[Policies], Policies], *, marks: Collection[str] | None = None
    ) -> Versioned[Policies]:
        """Apply `change` to what is there, again when another write comes first; return what is stored then.

        `change` must give the same when applied to its own result: after a lost reply it is.
        marks: what is there must have one of them; None: it may be anything.
        Raises NamespaceNotFound, PreconditionFailed, StoreUnavailable.
        """
        #: what may have been written already: a reply was lost
        in_doubt: Policies | None = None
        while True:
            stored = await self.read(scope)
            if stored.value == in_doubt:
                return stored
            if marks is not None and mark_of(stored) not in marks:
                message = f"these policies were changed by another: they are at {mark_of(stored)}; read them again"
                raise PreconditionFailed(message)
            changed = change(stored.value)
            if changed == stored.value:
                return stored
            written = await self.write(scope, changed, version=stored.version)
            if written.status is WriteStatus.OK:
                return Versioned(changed, written.version)
            if written.status is WriteStatus.UNKNOWN:
                in_doubt = changed

    async def require(self, caller: Caller, namespace: NamespaceName, *rights: Right) -> None:
        """Raises PermissionDenied unless the caller has any of the rights as they are now, after a sync.

        Also where there is no such namespace: who may not see it learns nothing of it.
        """
        if caller.superuser:
            return
        try:
            grants = (await self.read(namespace)).value.permissions
        except NamespaceNotFound:
            grants = {}
        require(caller, grants, *rights, what=f"namespace {namespace}")

    async def effective(self, namespace: NamespaceName) -> EffectivePolicies:
        """What holds for a namespace, and why. Raises NamespaceNotFound."""
        return await self._nearest([(namespace, PolicySource.NAMESPACE), (CLUSTER, PolicySource.CLUSTER)])

    async def effective_of(self, name: TopicName, topic_id: TopicId) -> EffectivePolicies:
        """What holds for the topic of that name and id, and why. Raises NamespaceNotFound."""
        return await self._nearest(await self._levels(name, topic_id))

    async def watch(self, name: TopicName, topic_id: TopicId) -> AsyncGenerator[EffectivePolicies, None]:
        """What holds for a topic now, and again whenever one of its levels changes or a change could be missed.

        An item may equal the one before. Raises StoreUnavailable once the session is closed, CorruptEntry.
        """
        levels = {_path(scope): source for scope, source in await self._levels_once_answered(name, topic_id)}
        async for nodes in PathsWatch(self._session, tuple(levels)):
            found = [(path, source) for path, source in levels.items() if path in nodes]
            yield nearest([(decode_policies(nodes[path].data), source) for path, source in found])

    async def _levels(self, name: TopicName, topic_id: TopicId) -> list[tuple[Scope, PolicySource]]:
        """Whose policies hold for a topic, nearest first.

        They stay the same as long as the topic is there: a part is made only under a partitioned topic, and that name
        points to nothing else before the last part is gone.
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
                # Its own deadline paced it: go on asking, as a watch does.
                if self._session.closed:
                    raise

    async def _nearest(self, levels: list[tuple[Scope, PolicySource]]) -> EffectivePolicies:
        stored = await asyncio.gather(*(self.read(scope) for scope, _ in levels))
        return nearest([(one.value, source) for one, (_, source) in zip(stored, levels, strict=True)])


def mark_of(stored: Versioned[Policies]) -> str:
    """Of the policies as they were read: letters, digits and `-`. Another after each change.

    The version alone would not do: a namespace that is deleted and made anew counts from 0 again (hazard 3).
    """
    if stored.version == ABSENT_VERSION:
        return "none"
    return f"{stored.version}-{crc32(encode_policies(stored.value)):08x}"


def nearest(layers: list[tuple[Policies, PolicySource]]) -> EffectivePolicies:
    """layers: nearest first; the defaults come after the last."""

    def effective(name: str) -> Effective[bool]:
        for policies, source in (*layers, (DEFAULTS, PolicySource.DEFAULT)):
            if (value := getattr(policies, name)) is not None:
                return Effective(value, source)
        raise AssertionError(f"unreachable: {name} has a default")

    grants = next((policies.permissions for policies, source in layers if source is PolicySource.NAMESPACE), {})
    return EffectivePolicies(effective("deduplication"), effective("auto_create_topics"), grants)


def encode_policies(policies: Policies) -> bytes:
    known = {name: value for name in _NAMES if (value := getattr(policies, name)) is not None}
    granted = {"permissions": dict(policies.permissions)} if policies.permissions else {}
    return encode_record({**policies.further, **known, **granted})


def decode_policies(data: bytes) -> Policies:
    """Raises CorruptEntry."""
    return decode_record(data, "a policies record", _build)


def _build(fields: dict[str, Any]) -> Policies:
    values = {name: fields.pop(name, None) for name in _NAMES}
    del fields["format"]  # the one that is read
    if any(value is not None and not isinstance(value, bool) for value in values.values()):
        raise ValueError(f"a switch that is neither true nor false: {values}")
    return Policies(**values, permissions=_grants(fields.pop("permissions", {})), further=fields)


def _grants(told: object) -> Grants:
    """What cannot be understood must not pass for "nothing is granted": it would be written back so."""
    if not isinstance(told, dict):
        raise ValueError(f"permissions are no object: {told!r}")
    for role, rights in told.items():
        if not isinstance(rights, list) or not all(isinstance(right, str) for right in rights):
            raise ValueError(f"the rights of role {role!r} are no list of names")
    return {role: tuple(rights) for role, rights in told.items()}


def _path(scope: Scope) -> str:
    if isinstance(scope, ClusterScope):
        return paths.CLUSTER_POLICIES
    if isinstance(scope, NamespaceName):
        return paths.namespace_policies(scope)
    return paths.topic_policies(scope)
