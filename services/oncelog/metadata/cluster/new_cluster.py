"""The creation of a cluster by the first metadata service, after the proof that it is new (`first_cluster`)."""

from functools import partial
from pathlib import Path

from oncelog.core.errors import NotFound
from oncelog.core.placement.first_cluster import creation_refusal
from oncelog.metadata_store.joining.directories import answers_of, read_nodes
from oncelog.metadata_store.joining.joining import Find
from oncelog.metadata_store.records.cluster_store import ClusterRecord, ClusterStore
from oncelog.runtime.settings import MetadataSettings


def finder(settings: MetadataSettings) -> Find:
    """How a metadata service finds its cluster, which it completes if an older version has created it."""
    path = settings.new_cluster_nodes_file
    return partial(_find_and_complete, partial(find_or_create, Path(path)) if path else ClusterStore.require)


def creator(settings: MetadataSettings) -> Find:
    """How --create-cluster does: the request is the proof, unless the setting demands another one."""
    return finder(settings) if settings.new_cluster_nodes_file else ClusterStore.establish


async def _find_and_complete(find: Find, store: ClusterStore) -> ClusterRecord:
    record = await find(store)
    await store.complete(record)
    return record


async def find_or_create(nodes_file: Path, store: ClusterStore) -> ClusterRecord:
    """The cluster's record. Creates the cluster if there is none and it is proved to be new.

    nodes_file: host:health_port of each storage node, one in each line; read at each call.
    Raises NotFound with the reason against it, StoreUnavailable, InvalidArgument for the file, WrongCluster.
    """
    record = await store.read()
    if record is not None:
        return record
    refusal = creation_refusal(await answers_of(read_nodes(nodes_file)))
    if refusal is not None:
        raise NotFound(refusal)
    return await store.establish()
