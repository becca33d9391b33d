"""Paths of the REST interface, from names as people type them."""

from urllib.parse import quote

from oncelog.core.names import TopicName, check_part, parse_namespace, parse_topic

ROOT = "/admin/v2"


def tenant_path(tenant: str) -> str:
    """Raises InvalidName."""
    return f"{ROOT}/tenants/{check_part(tenant, field='tenant')}"


def namespace_path(namespace: str) -> str:
    """Raises InvalidName."""
    return f"{ROOT}/namespaces/{parse_namespace(namespace)}"


def permissions_path(namespace: str, role: str | None = None) -> str:
    """Of all roles, or of one. Raises InvalidName."""
    path = f"{namespace_path(namespace)}/permissions"
    return path if role is None else f"{path}/{check_part(role, field='role')}"


def topic_path(topic: str) -> str:
    """Raises InvalidName."""
    return f"{ROOT}/persistent/{_full(parse_topic(topic))}"


def topics_path(namespace: str) -> str:
    """Where the topics of a namespace are listed. Raises InvalidName."""
    return f"{ROOT}/persistent/{parse_namespace(namespace)}"


def lookup_path(topic: str) -> str:
    """Raises InvalidName."""
    return f"/lookup/v2/topic/persistent/{_full(parse_topic(topic))}"


def read_only_path(incarnation: str) -> str:
    """The mark of a storage node."""
    return f"{ROOT}/storage-nodes/{quote(incarnation, safe='')}/read-only"


def _full(topic: TopicName) -> str:
    return f"{topic.tenant}/{topic.namespace}/{topic.local_full}"
