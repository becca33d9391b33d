"""The groups and commands of `oncelog admin`."""

from typing import Annotated

import typer

from oncelog.cli.admin.commands import admin_command
from oncelog.cli.admin.credentials import certificates, tokens
from oncelog.cli.admin.partitions import add_partitions
from oncelog.cli.admin.places import (
    ROOT,
    lookup_path,
    namespace_path,
    permissions_path,
    read_only_path,
    storage_node,
    tenant_path,
    topic_path,
    topics_path,
)
from oncelog.cli.admin.rest import AdminApi, Answer
from oncelog.cli.admin.switches import add_cluster_switch, add_switch
from oncelog.cli.failures import EXIT_CODES
from oncelog.core.access import Right
from oncelog.core.names import DEFAULT_TENANT

_HELP = f"""Administer a cluster over the REST interface of a metadata service.

A namespace is `tenant/namespace`, or `namespace` in the tenant public; a topic `tenant/namespace/name`, or `name` in
public/default.

    oncelog admin namespaces create public/orders

    oncelog admin namespaces set-deduplication public/orders --enable

    oncelog admin namespaces grant public/orders importer produce consume

    oncelog admin topics stats public/orders/new -o json

    oncelog admin topics unload public/orders/new

-o wide shows every column and whole ids, -o json what REST answers. Tables show the beginning of an id, which is enough
for commands that take one, times in UTC or as how long ago, and sizes in KiB, MiB and GiB.

{EXIT_CODES}"""

NamespaceArgument = Annotated[str, typer.Argument(metavar="NAMESPACE", help="tenant/namespace.")]
TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="A name, or tenant/namespace/name.")]
RoleArgument = Annotated[str, typer.Argument(metavar="ROLE", help="The role that a token was made for.")]
RightsArgument = Annotated[list[Right], typer.Argument(metavar="RIGHT…", help="admin, produce, consume.")]
TenantArgument = Annotated[str, typer.Argument(metavar="TENANT", help="A tenant.")]
IncarnationArgument = Annotated[
    str, typer.Argument(metavar="INCARNATION", help="Of a storage node, or its beginning, as listed.")
]

admin = typer.Typer(help=_HELP, no_args_is_help=True, rich_markup_mode="markdown")
tenants = typer.Typer(help="Tenants: what namespaces belong to.", no_args_is_help=True)
namespaces = typer.Typer(help="Namespaces and their policies.", no_args_is_help=True)
topics = typer.Typer(help="Topics: their state, policies and owners.", no_args_is_help=True)
cluster = typer.Typer(help="The cluster itself and its policies.", no_args_is_help=True)
brokers = typer.Typer(help="Topic owners.", no_args_is_help=True)
storage_nodes = typer.Typer(help="Storage nodes.", no_args_is_help=True)

for _name, _group in (
    ("namespaces", namespaces),
    ("topics", topics),
    ("tenants", tenants),
    ("cluster", cluster),
    ("brokers", brokers),
    ("storage-nodes", storage_nodes),
    ("tokens", tokens),
    ("certificates", certificates),
):
    admin.add_typer(_group, name=_name)


@admin_command(tenants, "list")
def list_tenants(api: AdminApi) -> Answer:
    """List the tenants."""
    return api.get(f"{ROOT}/tenants")


@admin_command(tenants, "create")
def create_tenant(api: AdminApi, tenant: TenantArgument) -> Answer:
    """Create a tenant."""
    api.put(tenant_path(tenant))
    return f"tenant {tenant} is created"


@admin_command(tenants, "show")
def show_tenant(api: AdminApi, tenant: TenantArgument) -> Answer:
    """Show a tenant with its namespaces."""
    return api.get(tenant_path(tenant))


@admin_command(tenants, "delete")
def delete_tenant(api: AdminApi, tenant: TenantArgument) -> Answer:
    """Delete a tenant that has no namespace."""
    api.delete(tenant_path(tenant))
    return f"tenant {tenant} is deleted"


@admin_command(namespaces, "list")
def list_namespaces(api: AdminApi, tenant: TenantArgument = DEFAULT_TENANT) -> Answer:
    """List the namespaces of a tenant."""
    return api.get(namespace_path(f"{tenant}/x").removesuffix("/x"))


@admin_command(namespaces, "create")
def create_namespace(
    api: AdminApi,
    namespace: NamespaceArgument,
    deduplication: Annotated[
        bool | None, typer.Option("--deduplication/--no-deduplication", help="By default the cluster decides.")
    ] = None,
) -> Answer:
    """Create a namespace."""
    api.put(namespace_path(namespace), None if deduplication is None else {"deduplication": deduplication})
    return f"namespace {namespace} is created"


@admin_command(namespaces, "show")
def show_namespace(api: AdminApi, namespace: NamespaceArgument) -> Answer:
    """Show a namespace and the policies that are set on it."""
    return api.get(namespace_path(namespace))


@admin_command(namespaces, "delete")
def delete_namespace(api: AdminApi, namespace: NamespaceArgument) -> Answer:
    """Delete a namespace that holds no topic."""
    api.delete(namespace_path(namespace))
    return f"namespace {namespace} is deleted"


@admin_command(namespaces, "permissions")
def show_permissions(api: AdminApi, namespace: NamespaceArgument) -> Answer:
    """Show the rights of each role in a namespace; superusers need none."""
    return api.get(permissions_path(namespace))


@admin_command(namespaces, "grant")
def grant_permissions(
    api: AdminApi, namespace: NamespaceArgument, role: RoleArgument, rights: RightsArgument
) -> Answer:
    """Give a role these rights in a namespace, in place of those that it has."""
    api.post(permissions_path(namespace, role), [right.value for right in rights])
    return f"role {role} may {', '.join(rights)} in {namespace}"


@admin_command(namespaces, "revoke")
def revoke_permissions(api: AdminApi, namespace: NamespaceArgument, role: RoleArgument) -> Answer:
    """Take all rights in a namespace from a role: it opens nothing any more."""
    api.delete(permissions_path(namespace, role))
    return f"role {role} has no rights in {namespace}"


@admin_command(topics, "list")
def list_topics(api: AdminApi, namespace: NamespaceArgument = "public/default") -> Answer:
    """List the topics of a namespace."""
    return api.get(topics_path(namespace))


@admin_command(topics, "create")
def create_topic(api: AdminApi, topic: TopicArgument) -> Answer:
    """Create a topic; mostly not needed, for a topic is created by its first use unless its namespace forbids that."""
    api.put(topic_path(topic))
    return f"topic {topic} is created"


@admin_command(topics, "delete")
def delete_topic(api: AdminApi, topic: TopicArgument) -> Answer:
    """Delete a topic with all its messages, for good: its producers and readers end with an error."""
    api.delete(topic_path(topic))
    return f"topic {topic} is deleted"


@admin_command(topics, "show")
def show_topic(api: AdminApi, topic: TopicArgument) -> Answer:
    """Show a topic's record: id, owner, epoch, ledgers."""
    return api.get(topic_path(topic))


@admin_command(topics, "lookup")
def look_up_topic(api: AdminApi, topic: TopicArgument) -> Answer:
    """Show where a topic is served; places it when it has no live owner."""
    return api.get(lookup_path(topic))


@admin_command(topics, "stats")
def show_stats(api: AdminApi, topic: TopicArgument) -> Answer:
    """Show statistics: messages, verdicts of deduplication, producers, takeovers."""
    return api.get(f"{topic_path(topic)}/stats")


@admin_command(topics, "stats-internal")
def show_internal_stats(api: AdminApi, topic: TopicArgument) -> Answer:
    """Show the internal state: producers with marks and generations, ledgers, the snapshot."""
    return api.get(f"{topic_path(topic)}/internalStats")


@admin_command(topics, "unload")
def unload_topic(api: AdminApi, topic: TopicArgument) -> Answer:
    """Have the owner close the topic and another one take it over."""
    api.put(f"{topic_path(topic)}/unload")
    return f"topic {topic} is unloaded and placed anew"


@admin_command(storage_nodes, "show")
def show_storage_node(api: AdminApi, incarnation: IncarnationArgument) -> Answer:
    """Show one storage node."""
    return api.get(f"{ROOT}/storage-nodes/{storage_node(api, incarnation)}")


@admin_command(cluster, "show")
def show_cluster(api: AdminApi) -> Answer:
    """Show the cluster's id, its topic owners and its storage nodes."""
    return {
        "cluster_id": _only(api.get(f"{ROOT}/clusters")),
        "brokers": api.get(f"{ROOT}/brokers"),
        "storage_nodes": api.get(f"{ROOT}/storage-nodes"),
    }


@admin_command(brokers, "list")
def list_brokers(api: AdminApi) -> Answer:
    """List the topic owners."""
    return api.get(f"{ROOT}/brokers")


@admin_command(brokers, "health")
def show_health(api: AdminApi) -> Answer:
    """Say whether topics can be placed; the exit code is 0 only then."""
    return api.get(f"{ROOT}/brokers/health")


@admin_command(storage_nodes, "list")
def list_storage_nodes(api: AdminApi) -> Answer:
    """List the storage nodes: the live ones, and those whose directories once joined."""
    return api.get(f"{ROOT}/storage-nodes")


@admin_command(storage_nodes, "set-read-only")
def set_read_only(api: AdminApi, incarnation: IncarnationArgument) -> Answer:
    """Give a storage node no new ledgers; what it holds is still read. It stays so until it is cleared."""
    node = storage_node(api, incarnation)
    api.put(read_only_path(node))
    return f"storage node {node} gets no new ledgers"


@admin_command(storage_nodes, "clear-read-only")
def clear_read_only(api: AdminApi, incarnation: IncarnationArgument) -> Answer:
    """Give a storage node new ledgers again."""
    node = storage_node(api, incarnation)
    api.delete(read_only_path(node))
    return f"storage node {node} gets new ledgers"


add_partitions(topics)


def _only(answer: Answer) -> Answer:
    return str(answer[0]) if isinstance(answer, list) and answer else None


add_switch(namespaces, "deduplication", "namespace", lambda _, name: f"{namespace_path(name)}/deduplication")
add_switch(namespaces, "auto topic creation", "namespace", lambda _, name: f"{namespace_path(name)}/autoTopicCreation")
add_switch(topics, "deduplication", "topic", lambda _, name: f"{topic_path(name)}/deduplicationEnabled")
add_cluster_switch(cluster, "deduplication", "deduplication")
add_cluster_switch(cluster, "auto topic creation", "autoTopicCreation")
