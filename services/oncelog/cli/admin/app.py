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
from oncelog.cli.admin.policies import policy
from oncelog.cli.admin.producers import producers
from oncelog.cli.admin.proving import add_proving
from oncelog.cli.admin.rest import AdminApi, Answer, number
from oncelog.cli.admin.rest_paths import (
    ROOT,
    lookup_path,
    namespace_path,
    namespaces_path,
    partitions_path,
    permissions_path,
    tenant_path,
    topic_path,
)
from oncelog.cli.admin.stats import add_stats
from oncelog.cli.admin.storage import storage
from oncelog.cli.admin.subscriptions import subscriptions
from oncelog.cli.admin.topic_list import add_topic_list
from oncelog.cli.failures import EXIT_CODES
from oncelog.core.access import Right
from oncelog.core.errors import TopicNotFound
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

admin = typer.Typer(help=_HELP, no_args_is_help=True)
tenants = typer.Typer(help="Manage tenants, which contain namespaces.", no_args_is_help=True)
namespaces = typer.Typer(help="Manage namespaces and the rights in them.", no_args_is_help=True)
topics = typer.Typer(help="Manage topics and their placement.", no_args_is_help=True)
cluster = typer.Typer(help="Show the cluster, and end its upgrade.", no_args_is_help=True)

for _name, _group in (
    ("namespaces", namespaces),
    ("topics", topics),
    ("subscriptions", subscriptions),
    ("producers", producers),
    ("policy", policy),
    ("tenants", tenants),
    ("cluster", cluster),
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
def show_namespace(
    api: AdminApi,
    namespace: NamespaceArgument,
    permissions: Annotated[
        bool, typer.Option("--permissions", help="Show the rights of each role instead, without those of superusers.")
    ] = False,
) -> Answer:
    """Show a namespace, or the rights of each role in it. `oncelog admin policy show` has its policies."""
    return api.get(permissions_path(namespace) if permissions else namespace_path(namespace))


@admin_command(namespaces, "delete")
def delete_namespace(api: AdminApi, namespace: NamespaceArgument, yes: YesOption = False) -> Answer:
    """Delete an empty namespace, with its policies and rights. Asks first."""

    def loss() -> str:
        return f"delete namespace {namespace} with its policies and {losses.of_namespace(api, namespace)}"

    confirm(yes, loss, typed=namespace)
    api.delete(namespace_path(namespace))
    return f"deleted namespace {namespace}"


@admin_command(namespaces, "grant")
def grant_permissions(
    api: AdminApi, namespace: NamespaceArgument, role: RoleArgument, rights: RightsArgument
) -> Answer:
    """Grant a role these rights in a namespace, replacing its previous rights."""
    api.post(permissions_path(namespace, role), [right.value for right in rights])
    return f"granted {', '.join(rights)} in {namespace} to role {role}"


@admin_command(namespaces, "revoke")
def revoke_permissions(api: AdminApi, namespace: NamespaceArgument, role: RoleArgument) -> Answer:
    """Revoke all rights of a role in a namespace. The role can then open no new producers and readers."""
    api.delete(permissions_path(namespace, role))
    return f"revoked all rights in {namespace} of role {role}"


add_topic_list(topics)
add_stats(topics)


@admin_command(topics, "create", line="Create a topic.")
def create_topic(
    api: AdminApi,
    topic: TopicArgument,
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", "-p", min=1, help="Number of partitions. By default it has none, and is one log."),
    ] = None,
) -> Answer:
    """Create a topic. Usually not needed: a topic is created on its first use unless a policy disables this.

    Each partition is created on its first use.
    """
    if partitions is None:
        api.put(topic_path(topic))
        return f"created topic {topic}"
    api.put(partitions_path(topic), partitions)
    return f"created topic {topic} with {partitions} partitions"


@admin_command(topics, "update", line="Add partitions.")
def update_topic(
    api: AdminApi,
    topic: TopicArgument,
    partitions: Annotated[int, typer.Option("--partitions", "-p", min=1, help="New number of partitions.")],
    yes: YesOption = False,
) -> Answer:
    """Give a partitioned topic more partitions. Its stored messages stay where they are.

    New messages of a key may go to another partition than before, without any order between the two. Existing producer
    names keep the former number for messages with their own sequence ids; new names use all partitions.
    """
    confirm(
        yes,
        lambda: (
            f"give {topic} {partitions} partitions for ever: new messages of a key may go to another partition "
            "than before, without any order between the two, and producer names that exist keep the former number "
            "for messages with sequence ids of their own"
        ),
        typed=topic,
    )
    api.post(partitions_path(topic), partitions)
    return f"topic {topic} has {partitions} partitions"


@admin_command(topics, "delete", line="Delete a topic permanently.")
def delete_topic(api: AdminApi, topic: TopicArgument, yes: YesOption = False) -> Answer:
    """Permanently delete a topic with all its messages, and all its partitions. Says what is lost, and asks first.

    Its producers and readers end with an error. The log forgets the sequence ids of its producers, too.
    """
    partitions = _partitions(api, topic)
    whole = f"topic {topic}" if not partitions else f"topic {topic} with all its {partitions} partitions"
    confirm(yes, lambda: f"delete {whole} for ever, with {losses.of_topic(api, topic)}", typed=topic)
    api.delete(topic_path(topic) if partitions == 0 else partitions_path(topic))
    return f"deleted {whole}"


def _partitions(api: AdminApi, topic: str) -> int | None:
    """None: there is no such topic, or it is being deleted: to delete it again waits for the end, with its partitions
    or without any."""
    try:
        record = api.get(topic_path(topic))
    except TopicNotFound:
        return None
    return number(record.get("partitions")) if isinstance(record, dict) else 0


@admin_command(topics, "show", line="Show the topic's record.")
def show_topic(
    api: AdminApi,
    topic: TopicArgument,
    lookup: Annotated[
        bool, typer.Option("--lookup", help="Look up its owner. A topic without a live owner is placed on one.")
    ] = False,
) -> Answer:
    """Show the record of a topic: id, owner, owner epoch, number of ledgers and of partitions."""
    return api.get(lookup_path(topic) if lookup else topic_path(topic))


@admin_command(topics, "unload", line="Move it to another owner.")
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


@admin_command(cluster, "show")
def show_cluster(api: AdminApi) -> Answer:
    """Show the cluster's id, its topic owners and its storage nodes."""
    return {
        "cluster_id": _only(api.get(f"{ROOT}/clusters")),
        "brokers": api.get(f"{ROOT}/brokers"),
        "storage_nodes": api.get(f"{ROOT}/storage-nodes"),
    }


@admin_command(cluster, "health")
def show_health(api: AdminApi) -> Answer:
    """Check whether topics can be placed. The exit code is 0 only if they can."""
    return api.get(f"{ROOT}/brokers/health")


add_apply(admin)
add_proving(topics)
add_level(cluster)


def _only(answer: Answer) -> Answer:
    return str(answer[0]) if isinstance(answer, list) and answer else None
