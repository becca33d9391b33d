"""What is asked of two clusters, one of which has copies of the other's topics."""

from typing import NamedTuple

from oncelog.client.client import AsyncClient
from oncelog.client.rest_calls import cluster_id_of
from oncelog.core.errors import InvalidArgument

#: Which cluster is meant, for log and errors.
AT_SOURCE, AT_TARGET = "in the source cluster (--from)", "in the target cluster (--to)"


class ClusterIds(NamedTuple):
    source: str
    target: str


async def two_clusters(source: AsyncClient, target: AsyncClient, timeout_ms: int | None) -> ClusterIds:
    """Raises InvalidArgument for one cluster, DeadlineExceeded."""
    ids = ClusterIds(
        await cluster_id_of(source, timeout_ms, where=AT_SOURCE),
        await cluster_id_of(target, timeout_ms, where=AT_TARGET),
    )
    if ids.source == ids.target:
        raise InvalidArgument(f"both URLs are of cluster {ids.target}: a topic cannot be a copy of itself", field="to")
    return ids
