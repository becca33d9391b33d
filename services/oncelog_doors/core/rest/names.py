"""Names in answers: Pulsar's `persistent://tenant/namespace/topic` and this cluster's full names."""

from collections.abc import Iterable, Mapping

#: The only cluster there is, as Pulsar's standalone calls its own.
CLUSTER = "standalone"
CLUSTERS = (CLUSTER,)


def shown_topic(full_name: str) -> str:
    return f"persistent://{full_name}"


def logs_of(topics: Iterable[str], partitions: Mapping[str, int]) -> list[str]:
    """As Pulsar lists them: topics without partitions, and all partitions, also those that were never used.

    topics: full names, with or without these. partitions: {full name of a partitioned topic: their number}.
    """
    logs = {name for name in topics if name not in partitions}
    logs.update(f"{name}-partition-{number}" for name, count in partitions.items() for number in range(count))
    return [shown_topic(each) for each in sorted(logs)]
