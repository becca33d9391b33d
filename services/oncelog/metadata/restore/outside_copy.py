"""Stores a copy of ZooKeeper's records that was kept outside of the cluster: a restore reads it as any other one.

Rules
- Before anything is stored, the file is read as a restore reads it, with the keys of this metadata service, and must be
  one that a restore uses beside the storage nodes that answer (hazard half-a-copy).
- Its name tells its content. So a repeated request stores the same file again, and none replaces another copy.
- It is pinned: a restore reads all pinned copies, also if newer ones are there.
- Storage nodes are found as a restore finds them, so it is possible while ZooKeeper is lost.
"""

import asyncio
from collections.abc import Sequence
from io import BytesIO

from oncelog.core.errors import Conflict, InvalidArgument, ServiceUnavailable
from oncelog.metadata.restore.node_reader import NodeReader
from oncelog.metadata.restore.noted_records import copy_fault, knowledge_of
from oncelog.metadata.restore.performer import RestoreSources
from oncelog.metadata.restore.record_copies import KeptCopy
from oncelog.metadata.restore.tree_nodes import nodes_in_trees
from oncelog.metadata_store.copies.copy_file import read_copy
from oncelog.metadata_store.copies.copy_folder import created_of, name_by_content
from oncelog.metadata_store.records.cluster_store import ClusterStore


async def store_copy(sources: RestoreSources, name: str, file: bytes, *, given: Sequence[str]) -> KeptCopy:
    """Returns when it is stored. given: addresses of storage nodes.

    Raises InvalidArgument that says why the file is refused, Conflict if a restore would not use it, StoreUnavailable,
    and ServiceUnavailable that names where it could not be stored.
    """
    copy = await asyncio.to_thread(read_copy, BytesIO(file), sources.copy_keys())
    expected = name_by_content(copy.header, file)
    if name != expected:
        raise InvalidArgument(f"the name of this copy is {expected}, not {name}", field="name")
    cluster, _ = await ClusterStore(sources.session).find_replaceable()
    ack_quorum = 0 if cluster is None else cluster.value.ack_quorum
    in_trees, _ = await nodes_in_trees(sources.session, None)
    async with NodeReader(sources.credentials) as reader:
        seen, notes = await reader.survey([*given, *sources.nodes()], recorded=in_trees)
        if not seen:
            silent = "; ".join(f"{address}: {reason}" for address, reason in sorted(reader.silent.items()))
            message = "no storage node with data has answered: name storage nodes by --nodes HOST:PORT, and start them"
            raise ServiceUnavailable(f"{message} ({silent})" if silent else message)
        era = max(node.era.number for node in seen.values())
        fault = await asyncio.to_thread(copy_fault, copy, {node.cluster_id for node in seen.values()}, era)
        if fault is not None:
            raise Conflict(f"the copy is refused: {fault}")
        stored = await reader.keep_copy(seen, ack_quorum or knowledge_of(notes).ack_quorum, name, file)
    return KeptCopy(name, created_of(name), len(file), True, tuple(stored))
