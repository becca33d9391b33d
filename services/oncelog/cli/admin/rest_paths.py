"""REST paths, from names as users type them."""

from urllib.parse import quote

from oncelog.cli.admin.rest import AdminApi
from oncelog.core.errors import InvalidArgument
from oncelog.core.names import TopicName, check_part, check_producer_name, parse_namespace, parse_topic

ROOT = "/admin/v2"
#: Lists the topics and the subscriptions of all namespaces; below it, those of one.
TOPICS = f"{ROOT}/topics"
LAGS = f"{ROOT}/subscriptions"
INCARNATION_CHARACTERS = 32


def tenant_path(tenant: str) -> str:
    """Raises InvalidName."""
    return f"{ROOT}/tenants/{check_part(tenant, field='tenant')}"


def cluster_path(api: AdminApi) -> str:
    """The path of the one cluster of a REST interface."""
    clusters = api.get(f"{ROOT}/clusters")
    return f"{ROOT}/clusters/{clusters[0] if isinstance(clusters, list) and clusters else ''}"


def namespace_path(namespace: str) -> str:
    """Raises InvalidName."""
    return f"{ROOT}/namespaces/{parse_namespace(namespace)}"


def namespaces_path(tenant: str) -> str:
    """The path that lists the namespaces of a tenant. Raises InvalidName."""
    return f"{ROOT}/namespaces/{check_part(tenant, field='tenant')}"


def permissions_path(namespace: str, role: str | None = None) -> str:
    """The path of the rights of all roles, or of one role. Raises InvalidName."""
    path = f"{namespace_path(namespace)}/permissions"
    return path if role is None else f"{path}/{check_part(role, field='role')}"


def topic_path(topic: str) -> str:
    """Raises InvalidName."""
    return f"{ROOT}/persistent/{_full(parse_topic(topic))}"


def subscription_path(topic: str, subscription: str) -> str:
    """Raises InvalidName."""
    return f"{topic_path(topic)}/subscription/{quote(check_part(subscription, field='subscription'), safe='')}"


def producer_path(topic: str, producer: str | int) -> str:
    """producer: name or id. Raises InvalidName."""
    name = producer if isinstance(producer, int) else check_producer_name(producer)
    return f"{topic_path(topic)}/producers/{quote(str(name), safe='')}"


def topics_path(namespace: str) -> str:
    """The path that lists the topics of a namespace. Raises InvalidName."""
    return f"{ROOT}/persistent/{parse_namespace(namespace)}"


def partitions_path(topic: str) -> str:
    """Raises InvalidName."""
    return f"{topic_path(topic)}/partitions"


def lookup_path(topic: str) -> str:
    """Raises InvalidName."""
    return f"/lookup/v2/topic/persistent/{_full(parse_topic(topic))}"


def storage_node(api: AdminApi, typed: str) -> str:
    """The incarnation of a storage node, from the whole of it or a unique prefix. Raises InvalidName, and
    InvalidArgument for an ambiguous prefix.
    """
    check_part(typed, field="incarnation")
    if len(typed) >= INCARNATION_CHARACTERS:
        return typed
    listed = api.get(f"{ROOT}/storage-nodes", all=True)
    nodes = [str(one.get("incarnation")) for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    found = [node for node in nodes if node.startswith(typed)]
    if len(found) > 1:
        message = f"prefix {typed} matches {len(found)} storage nodes: {', '.join(found)}; use a longer prefix"
        raise InvalidArgument(message, field="incarnation")
    return found[0] if found else typed


def read_only_path(incarnation: str) -> str:
    """The path of a storage node's read-only mark."""
    return f"{ROOT}/storage-nodes/{quote(incarnation, safe='')}/read-only"


def _full(topic: TopicName) -> str:
    return f"{topic.tenant}/{topic.namespace}/{topic.local_full}"
