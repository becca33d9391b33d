"""What the admin interface takes and gives, as values; and the names in its paths."""

from typing import Annotated

from fastapi import Depends, Path
from pydantic import BaseModel, ConfigDict, Field, StrictBool

from oncelog.core.names import NamespaceName, TopicName, check_part, parse_topic

_Tenant = Annotated[str, Path(description="A tenant: 1 to 255 of A-Z a-z 0-9 _ - = : .")]
_Namespace = Annotated[str, Path(description="A namespace, by the same rule.")]
_Topic = Annotated[str, Path(description="The last element of a topic's name, by the same rule.")]
_Cluster = Annotated[str, Path(description="The id of this cluster, as `GET /admin/v2/clusters` tells it.")]


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


class NewNamespace(BaseModel):
    """The policies that a namespace begins with; one that is left out is not set."""

    model_config = ConfigDict(extra="forbid")

    deduplication: StrictBool | None = None
    auto_create_topics: StrictBool | None = None


class TenantView(BaseModel):
    """A tenant and its namespaces, as `tenant/namespace`, sorted."""

    tenant: str
    namespaces: list[str]


class Partitions(BaseModel):
    """How many parts a topic has."""

    partitions: int = Field(description="0: it is not partitioned")


class NamespaceView(BaseModel):
    """A namespace and the policies that are set on it; null: not set."""

    namespace: str
    deduplication: bool | None
    auto_create_topics: bool | None


class AppliedSwitch(BaseModel):
    """The value that holds, and who says so."""

    value: bool
    source: str = Field(description="topic, partitioned_topic, namespace, cluster or default")


class TopicView(BaseModel):
    """A topic as its record shows it."""

    topic: str
    topic_id: str
    partitions: int = Field(description="0: not partitioned")
    owner: str | None = Field(description="Incarnation of its owner; null: it was never placed")
    owner_epoch: int
    ledger_count: int


class TopicStats(BaseModel):
    """Statistics of a topic from its owner; further fields are the owner's own.

    Phase `unowned`: no live owner holds the topic now, so nothing more is known.
    """

    model_config = ConfigDict(extra="allow")

    topic: str
    topic_id: str
    phase: str = Field(description="unowned, or the owner's phase: recovering, serving, fenced …")
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
    since_ms: int = Field(description="Its start, ms since 1970")
    state: str = Field(description="live, suspected (its stream closed and its port refuses) or draining")
    connected: bool = Field(description="Its stream is open at the metadata service that answers")


class BrokersHealth(BaseModel):
    """Topics can be placed."""

    status: str
    usable_owners: int
    writable_storage_nodes: int = Field(description="Those that are live and take new messages")


class StorageNodeView(BaseModel):
    """A storage node that is registered, or whose directory once joined."""

    incarnation: str
    address: str
    live: bool
    retired: bool = Field(description="Superseded or removed: never chosen again")
    free_bytes: int | None = Field(description="null: not live")
    read_only: bool = Field(description="It gets no new ledger: for want of room, or because it was set so")
    read_only_set: bool = Field(description="An operator has set it so")
