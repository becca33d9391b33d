"""Path parameters, request bodies and response bodies of the REST interface."""

from collections.abc import Callable, Iterable
from typing import Annotated

from fastapi import Depends, Path, Query
from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt

from oncelog.core.names import NamespaceName, TopicName, check_part, parse_topic
from oncelog.core.topic.listing import NAMED_MAX, UncountedTopics
from oncelog.metadata.observing.unowned_topics import UnownedTopics
from oncelog.metadata.owners.owners import advertised_address_of
from oncelog.metadata_store.records.registry import LiveOwner

_Tenant = Annotated[str, Path(description="Tenant: 1 to 255 of A-Z a-z 0-9 _ - = : .")]
_Namespace = Annotated[str, Path(description="Namespace; same characters as a tenant.")]
_Topic = Annotated[str, Path(description="Last part of the topic name; same characters as a tenant.")]
_Cluster = Annotated[str, Path(description="The cluster's id, from `GET /admin/v2/clusters`.")]


async def _tenant(tenant: _Tenant) -> str:
    return check_part(tenant, field="tenant")


async def _namespace(tenant: _Tenant, namespace: _Namespace) -> NamespaceName:
    return NamespaceName(check_part(tenant, field="tenant"), check_part(namespace, field="namespace"))


async def _topic(tenant: _Tenant, namespace: _Namespace, topic: _Topic) -> TopicName:
    for name, field in ((tenant, "tenant"), (namespace, "namespace"), (topic, "topic")):
        check_part(name, field=field)
    return parse_topic(f"{tenant}/{namespace}/{topic}")


async def _cluster(cluster: _Cluster) -> str:
    return check_part(cluster, field="cluster")


TenantPath = Annotated[str, Depends(_tenant)]
NamespacePath = Annotated[NamespaceName, Depends(_namespace)]
TopicPath = Annotated[TopicName, Depends(_topic)]
ClusterPath = Annotated[str, Depends(_cluster)]

EveryNode = Annotated[bool, Query(alias="all", description="true: retired storage nodes, too.")]


class NewNamespace(BaseModel):
    """Initial policies of a namespace; a policy that is left out is not set."""

    model_config = ConfigDict(extra="forbid")

    deduplication: StrictBool | None = None
    auto_create_topics: StrictBool | None = None


class TenantView(BaseModel):
    """A tenant and its namespaces, as `tenant/namespace`, sorted."""

    tenant: str
    namespaces: list[str]


class Partitions(BaseModel):
    """The number of partitions of a topic."""

    partitions: int = Field(description="0: the topic is not partitioned")


class NamespaceView(BaseModel):
    """A namespace and the policies that are set on it; null: not set."""

    namespace: str
    deduplication: bool | None
    auto_create_topics: bool | None


class TopicView(BaseModel):
    """The record of a topic."""

    topic: str
    topic_id: str
    partitions: int = Field(description="0: not partitioned")
    owner: str | None = Field(description="Incarnation of its owner; null: never placed")
    owner_epoch: int
    ledger_count: int


class TrimBody(BaseModel):
    """What is to be deleted of a topic."""

    model_config = ConfigDict(extra="forbid")

    before_index: StrictInt | None = Field(
        ge=0, lt=1 << 62, description="The first message that must stay; null: the present end of the topic"
    )


class TrimmedView(BaseModel):
    """What is left of a topic."""

    first_index: int = Field(description="The index of the first message that is left; of an empty topic, the next one")


class TopicStats(BaseModel):
    """Statistics of a topic from its owner, which adds further fields.

    Phase `unowned`: the topic has no live owner now, and there are no further fields.
    """

    model_config = ConfigDict(extra="allow")

    topic: str
    topic_id: str
    phase: str = Field(description="unowned, or the phase at the owner, such as recovering, serving or fenced")
    owner: str | None = Field(description="Incarnation of the owner that the topic's record names")
    owner_address: str | None
    owner_epoch: int


class LookupView(BaseModel):
    """Where a topic is served."""

    cluster_id: str
    topic: str
    topic_id: str
    partitions: int
    owner_address: str = Field(description="host:port of its gRPC port; empty for a partitioned topic")
    owner_incarnation: str
    owner_epoch: int


class OwnerView(BaseModel):
    """A topic owner that has a session."""

    incarnation: str
    address: str
    since_ms: int = Field(description="Start time, milliseconds since 1970")
    state: str = Field(description="live, suspected (its stream closed and nothing listens at its address) or draining")
    connected: bool = Field(description="The owner has a stream to the metadata service that answered")


class BrokersHealth(BaseModel):
    """The response if topics can be placed. Of the ledgers: as the elected replica last wrote it; null: not yet."""

    status: str = Field(
        description="The worst that applies: ok, under-replicated (a copy is missing; repair makes it again once a "
        "node may take it), frozen (sound copies differ), unavailable (no sound copy of some messages is known at a "
        "live storage node) or lost"
    )
    usable_owners: int
    writable_storage_nodes: int = Field(description="Live storage nodes that take new messages")
    under_replicated_ledgers: int | None
    unavailable_ledgers: int | None
    lost_ledgers: int | None
    frozen_ledgers: int | None


class StorageNodeView(BaseModel):
    """A storage node that is live, or whose directory has joined the cluster before."""

    incarnation: str
    address: str
    live: bool
    retired: bool = Field(description="Superseded or removed: never used again")
    free_bytes: int | None = Field(description="null: not live")
    read_only: bool = Field(description="New ledgers store nothing on it: its disk is full, or it was set read-only")
    read_only_set: bool = Field(description="Set read-only by an operator")


class SilentOwner(BaseModel):
    """A topic owner that did not answer: what it has is missing here."""

    incarnation: str
    address: str
    reason: str


class UncountedView(BaseModel):
    """Topics that a list leaves out, of those for which the request holds. Each partition counts."""

    topics: int
    first: list[str] = Field(description=f"The first {NAMED_MAX} full names, in order")


WithoutOwner = Annotated[
    UncountedView | None,
    Field(
        description="Topics that are not counted, because no owner serves them, as this replica has found them in the "
        "topic records a moment ago, or longer ago if there are many (5,000: a quarter of a minute). A topic that was "
        "never used is left out. null: not known yet"
    ),
]


def uncounted_view(found: UncountedTopics) -> UncountedView:
    return UncountedView(topics=found.topics, first=found.first)


async def unowned_view(unowned: UnownedTopics, matches: Callable[[str], bool]) -> UncountedView | None:
    """matches: which full names count."""
    found = await unowned.found(matches)
    return None if found is None else uncounted_view(found)


def silent_owners(silent: Iterable[tuple[LiveOwner, str]]) -> list[SilentOwner]:
    """silent: (topic owner, why it did not answer)."""
    return [
        SilentOwner(incarnation=owner.incarnation, address=advertised_address_of(owner), reason=reason)
        for owner, reason in silent
    ]
