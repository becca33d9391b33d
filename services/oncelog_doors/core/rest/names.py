"""Names in answers: Pulsar's `persistent://tenant/namespace/topic` and this cluster's full names."""

from collections.abc import Iterable

#: The only cluster there is, as Pulsar's standalone calls its own.
CLUSTER = "standalone"
CLUSTERS = (CLUSTER,)


def shown_topic(full_name: str) -> str:
    return f"persistent://{full_name}"


def unpartitioned(topics: Iterable[str], partitioned: Iterable[str]) -> list[str]:
    """Logs, as Pulsar lists them: topics without partitions, and partitions. topics: all full names."""
    groups = frozenset(partitioned)
    return [shown_topic(each) for each in topics if each not in groups]
