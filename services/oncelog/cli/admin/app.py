"""The groups and commands of `oncelog admin`."""

from typing import Annotated

import typer

from oncelog.cli.admin import losses
from oncelog.cli.admin.apply import add_apply
from oncelog.cli.admin.backup.app import backup
from oncelog.cli.admin.cluster.level import add_level
from oncelog.cli.admin.commands import admin_command
from oncelog.cli.admin.confirmation import YesOption, confirm
from oncelog.cli.admin.credentials import certificates, tokens
from oncelog.cli.admin.ledger import ledger
from oncelog.cli.admin.partitions import add_partitions
from oncelog.cli.admin.policies import policy
from oncelog.cli.admin.producers import producers
from oncelog.cli.admin.proving import add_proving
from oncelog.cli.admin.rest import AdminApi, Answer
from oncelog.cli.admin.rest_paths import (
    ROOT,
    lookup_path,
    namespace_path,
    namespaces_path,
    permissions_path,
    read_only_path,
    storage_node,
    tenant_path,
    topic_path,
)
from oncelog.cli.admin.storage import EveryNodeOption, storage
from oncelog.cli.admin.subscriptions import subscriptions
from oncelog.cli.admin.topic_list import add_topic_list
from oncelog.cli.admin.watching import add_watch
from oncelog.cli.failures import EXIT_CODES
from oncelog.core.access import Right
from oncelog.core.names import DEFAULT_TENANT

_HELP = f"""Administer a cluster through the REST interface of a metadata service.

Write a namespace as `tenant/namespace`, or `namespace` for the tenant public. Write a topic as
`tenant/namespace/name`, or `name` for public/default.

    oncelog admin namespaces create public/orders

    oncelog admin policy set public/orders retention time=7d

    oncelog admin namespaces grant public/orders importer produce consume

    oncelog admin topics list --state held --top 20

    oncelog admin topics stats public/orders/new -o json

    oncelog admin topics unload public/orders/new

    oncelog admin apply -f cluster.yaml --dry-run

Use -o wide for all columns and full ids, and -o json for the REST response. Tables show a prefix of each id, which
other commands accept, times in UTC or relative, and sizes in KiB, MiB and GiB.

{EXIT_CODES}"""

NamespaceArgument = Annotated[str, typer.Argument(metavar="NAMESPACE", help="Namespace: tenant/namespace.")]
TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="Topic: name, or tenant/namespace/name.")]
RoleArgument = Annotated[str, typer.Argument(metavar="ROLE", help="Role, as in its token.")]
RightsArgument = Annotated[list[Right], typer.Argument(metavar="RIGHT...", help="Rights: admin, produce, consume.")]
TenantArgument = Annotated[str, typer.Argument(metavar="TENANT", help="Tenant.")]
IncarnationArgument = Annotated[
    str, typer.Argument(metavar="INCARNATION", help="Incarnation of a storage node, or a unique prefix, from the list.")
]

admin = typer.Typer(help=_HELP, no_args_is_help=True, rich_markup_mode="markdown")
tenants = typer.Typer(help="Manage tenants, which contain namespaces.", no_args_is_help=True)
namespaces = typer.Typer(help="Manage namespaces and the rights in them.", no_args_is_help=True)
topics = typer.Typer(help="Manage topics and their placement.", no_args_is_help=True)
cluster = typer.Typer(help="Show the cluster, and end its upgrade.", no_args_is_help=True)
brokers = typer.Typer(help="Show topic owners.", no_args_is_help=True)
storage_nodes = typer.Typer(help="Show and manage storage nodes.", no_args_is_help=True)

for _name, _group in (
    ("namespaces", namespaces),
    ("topics", topics),
    ("subscriptions", subscriptions),
    ("producers", producers),
    ("policy", policy),
    ("tenants", tenants),
    ("cluster", cluster),
    ("brokers", brokers),
    ("storage-nodes", storage_nodes),
    ("storage", storage),
    ("ledger", ledger),
    ("backup", backup),
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
    return f"created tenant {tenant}"


@admin_command(tenants, "show")
def show_tenant(api: AdminApi, tenant: TenantArgument) -> Answer:
    """Show a tenant and its namespaces."""
    return api.get(tenant_path(tenant))


@admin_command(tenants, "delete")
def delete_tenant(api: AdminApi, tenant: TenantArgument) -> Answer:
    """Delete an empty tenant."""
    api.delete(tenant_path(tenant))
    return f"deleted tenant {tenant}"


@admin_command(namespaces, "list")
def list_namespaces(api: AdminApi, tenant: TenantArgument = DEFAULT_TENANT) -> Answer:
    """List the namespaces of a tenant."""
    return api.get(namespaces_path(tenant))


@admin_command(namespaces, "create")
def create_namespace(
    api: AdminApi,
    namespace: NamespaceArgument,
    deduplication: Annotated[
        bool | None,
        typer.Option(
            "--deduplication/--no-deduplication",
            help="Deduplicate messages. By default the policy of the cluster applies.",
        ),
    ] = None,
) -> Answer:
    """Create a namespace."""
    api.put(namespace_path(namespace), None if deduplication is None else {"deduplication": deduplication})
    return f"created namespace {namespace}"


@admin_command(namespaces, "show")
def show_namespace(api: AdminApi, namespace: NamespaceArgument) -> Answer:
    """Show a namespace and its policies."""
    return api.get(namespace_path(namespace))


@admin_command(namespaces, "delete")
def delete_namespace(api: AdminApi, namespace: NamespaceArgument, yes: YesOption = False) -> Answer:
    """Delete an empty namespace, with its policies and rights. Asks first."""

    def loss() -> str:
        return f"delete namespace {namespace} with its policies and {losses.of_namespace(api, namespace)}"

    confirm(yes, loss, typed=namespace)
    api.delete(namespace_path(namespace))
    return f"deleted namespace {namespace}"


@admin_command(namespaces, "permissions")
def show_permissions(api: AdminApi, namespace: NamespaceArgument) -> Answer:
    """Show the rights of each role in a namespace. Superusers are not listed."""
    return api.get(permissions_path(namespace))


@admin_command(namespaces, "grant")
def grant_permissions(
    api: AdminApi, namespace: NamespaceArgument, role: RoleArgument, rights: RightsArgument
) -> Answer:
    """Grant a role these rights in a namespace, replacing its previous rights."""
    api.post(permissions_path(namespace, role), [right.value for right in rights])
    return f"granted {', '.join(rights)} in {namespace} to role {role}"


@admin_command(namespaces, "revoke")
def revoke_permissions(api: AdminApi, namespace: NamespaceArgument, role: RoleArgument) -> Answer:
    """Revoke all rights of a role in a namespace. It can open no new producers and readers."""
    api.delete(permissions_path(namespace, role))
    return f"revoked all rights in {namespace} of role {role}"


add_topic_list(topics)
add_watch(topics)


@admin_command(topics, "create", line="Create a topic.")
def create_topic(api: AdminApi, topic: TopicArgument) -> Answer:
    """Create a topic. Usually not needed: a topic is created on its first use unless a policy disables this."""
    api.put(topic_path(topic))
    return f"created topic {topic}"


@admin_command(topics, "delete", line="Delete a topic for ever.")
def delete_topic(api: AdminApi, topic: TopicArgument, yes: YesOption = False) -> Answer:
    """Permanently delete a topic with all its messages. Says what is lost, and asks first.

    Its producers and readers end with an error. The log forgets the sequence ids of its producers, too.
    """
    confirm(yes, lambda: f"delete topic {topic} for ever, with {losses.of_topic(api, topic)}", typed=topic)
    api.delete(topic_path(topic))
    return f"deleted topic {topic}"


@admin_command(topics, "show", line="Show the topic's record.")
def show_topic(api: AdminApi, topic: TopicArgument) -> Answer:
    """Show the record of a topic: id, owner, owner epoch, number of ledgers."""
    return api.get(topic_path(topic))


@admin_command(topics, "lookup", line="Show the topic's owner.")
def look_up_topic(api: AdminApi, topic: TopicArgument) -> Answer:
    """Show the owner of a topic. A topic without a live owner is placed on one."""
    return api.get(lookup_path(topic))


@admin_command(topics, "stats", line="Show statistics.")
def show_stats(api: AdminApi, topic: TopicArgument) -> Answer:
    """Show statistics of a topic: messages, deduplication verdicts, producers, takeovers."""
    return api.get(f"{topic_path(topic)}/stats")


@admin_command(topics, "stats-internal", line="Show the internal state.")
def show_internal_stats(api: AdminApi, topic: TopicArgument) -> Answer:
    """Show the internal state of a topic: producers with sequence ids and generations, ledgers, the snapshot."""
    return api.get(f"{topic_path(topic)}/internalStats")


@admin_command(topics, "unload", line="Move a topic elsewhere.")
def unload_topic(api: AdminApi, topic: TopicArgument) -> Answer:
    """Move a topic to another owner."""
    api.put(f"{topic_path(topic)}/unload")
    return f"unloaded topic {topic}; its next owner takes it over"


@admin_command(topics, "truncate", line="Delete all messages.")
def truncate_topic(api: AdminApi, topic: TopicArgument, yes: YesOption = False) -> Answer:
    """Delete all messages of a topic, acknowledged or not. Says what is lost, and asks first.

    The topic, its producers and subscriptions stay.
    """
    confirm(yes, lambda: f"delete all messages of topic {topic}: {losses.of_topic(api, topic)}", typed=topic)
    api.delete(f"{topic_path(topic)}/truncate")
    return f"truncated topic {topic}"


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
    """Check whether topics can be placed. The exit code is 0 only if they can."""
    return api.get(f"{ROOT}/brokers/health")


@admin_command(storage_nodes, "list")
def list_storage_nodes(api: AdminApi, every: EveryNodeOption = False) -> Answer:
    """List the storage nodes that are live, or away and may return."""
    return api.get(f"{ROOT}/storage-nodes", all=every or None)


@admin_command(storage_nodes, "set-read-only")
def set_read_only(api: AdminApi, incarnation: IncarnationArgument) -> Answer:
    """Make a storage node read-only: new ledgers store nothing on it, and its entries are still read. If fewer other
    nodes are live and writable than a ledger has copies, new ledgers still list it as a member, and repair makes that
    copy after the ledger has ended. Persists until cleared."""
    node = storage_node(api, incarnation)
    api.put(read_only_path(node))
    return f"storage node {node} is read-only"


@admin_command(storage_nodes, "clear-read-only")
def clear_read_only(api: AdminApi, incarnation: IncarnationArgument) -> Answer:
    """Make a storage node writable again."""
    node = storage_node(api, incarnation)
    api.delete(read_only_path(node))
    return f"storage node {node} is writable"


add_apply(admin)
add_proving(topics)
add_level(cluster)
add_partitions(topics)


def _only(answer: Answer) -> Answer:
    return str(answer[0]) if isinstance(answer, list) and answer else None
