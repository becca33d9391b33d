"""The record of the cluster itself, and the making of one: its folders and the namespace public/default.

Rules: everything of a new cluster comes to be in one transaction with its record, so there is no half-made cluster; a
directory or a client of another cluster, and a cluster of another format, are refused.
"""

import json
from dataclasses import dataclass
from uuid import uuid4

from oncelog.core.errors import CorruptEntry, NotFound, WrongCluster
from oncelog.core.formats.record_fields import number, parse_json, text
from oncelog.core.names import DEFAULT_NAMESPACE, DEFAULT_TENANT, NamespaceName
from oncelog.stores import paths
from oncelog.stores.namespace_store import namespace_steps, tenant_steps
from oncelog.stores.policy_store import Policies
from oncelog.stores.store_session import CreateStep, Step, StoreSession

#: Of the whole tree below the root; each record in it has a format of its own.
LAYOUT_FORMAT = 1


@dataclass(frozen=True, slots=True)
class ClusterRecord:
    """cluster_id: made up once, with the cluster; whatever belongs to it carries it."""

    cluster_id: str
    format: int = LAYOUT_FORMAT


class ClusterStore:
    def __init__(self, session: StoreSession) -> None:
        self._session = session

    async def establish(self, cluster_id: str | None = None) -> ClusterRecord:
        """Make the cluster unless there is one, and return its record; tried until that is known.

        cluster_id: which it must be, and which a new one gets; None: any, and a random one.
        Raises WrongCluster, StoreUnavailable.
        """
        await self._session.ensure_path("")
        while True:
            record = await self.read()
            if record is not None:
                _checked(record, cluster_id)
                # An older cluster lacks the folders that came later.
                await self._session.ensure_path(paths.DELETIONS)
                await self._session.ensure_path(paths.TOMBSTONES)
                return record
            await self._session.transact(_creation(ClusterRecord(cluster_id or uuid4().hex)))

    async def read(self) -> ClusterRecord | None:
        """None: there is no cluster at this root. Raises WrongCluster for one of another format."""
        node = await self._session.read(paths.CLUSTER)
        return None if node is None else _decode(node.data)

    async def require(self, cluster_id: str | None = None) -> ClusterRecord:
        """The record of the cluster that must exist, and be this one unless None. Raises NotFound, WrongCluster."""
        record = await self.read()
        if record is None:
            raise NotFound("there is no cluster at this root of ZooKeeper yet: start a metadata service first")
        return _checked(record, cluster_id)


def _checked(record: ClusterRecord, cluster_id: str | None) -> ClusterRecord:
    if cluster_id is not None and record.cluster_id != cluster_id:
        raise WrongCluster(
            f"this ZooKeeper root is of cluster {record.cluster_id}, not of {cluster_id}: correct address or root",
            found=record.cluster_id,
            expected=cluster_id,
        )
    return record


def _creation(record: ClusterRecord) -> list[Step]:
    data = json.dumps({"cluster_id": record.cluster_id, "format": record.format}, separators=(",", ":")).encode()
    steps: list[Step] = [CreateStep(paths.CLUSTER, data), *map(CreateStep, paths.FOLDERS)]
    steps += tenant_steps(DEFAULT_TENANT)
    steps += namespace_steps(NamespaceName(DEFAULT_TENANT, DEFAULT_NAMESPACE), Policies())
    return steps


def _decode(data: bytes) -> ClusterRecord:
    try:
        fields = parse_json(data)
        record = ClusterRecord(text(fields, "cluster_id"), number(fields, "format"))
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptEntry(f"the record of the cluster cannot be read: {error!r}") from error
    if record.format != LAYOUT_FORMAT:
        raise WrongCluster(f"the cluster is of format {record.format}: this version serves format {LAYOUT_FORMAT}")
    return record
