"""Names in paths and answers: Pulsar's `persistent://tenant/namespace/topic` and this cluster's full names."""

from collections.abc import Iterable
from urllib.parse import quote

#: The only cluster there is, as Pulsar's standalone calls its own.
CLUSTER = "standalone"
CLUSTERS = (CLUSTER,)


def path(*parts: str) -> str:
    """Of REST, below /admin/v2. Each part may have any characters."""
    return below("/admin/v2", *parts)


def below(at: str, *parts: str) -> str:
    """Of REST, below another path."""
    return "/".join([at, *(quote(part, safe="") for part in parts)])


def topic_path(full_name: str) -> str:
    """Of REST. full_name: tenant/namespace/topic."""
    return path("persistent", *full_name.split("/"))


def shown_topic(full_name: str) -> str:
    return f"persistent://{full_name}"


def unpartitioned(topics: Iterable[str], partitioned: Iterable[str]) -> list[str]:
    """Logs, as Pulsar lists them: topics without partitions, and partitions. topics: all full names."""
    groups = frozenset(partitioned)
    return [shown_topic(each) for each in topics if each not in groups]
