"""The record of the cluster, and the creation of a cluster: its folders and the namespace public/default.

Rules
- A cluster is created in one transaction together with its record, so there is no half-created cluster.
- It is created only on an explicit request, or after proof that it is the first one
  (`metadata/cluster/new_cluster.py`). Any other process that finds no record waits: a ZooKeeper that has lost its data
  looks like a new one (hazard emptied-zookeeper).
- A directory or a client of another cluster, and a cluster of another format, are refused.
- The record has the cluster's level (`core.placement.level`). A record of a lower level than the first one is refused,
  and so is format 1, which has none.
"""

import json
from dataclasses import dataclass, field, replace
from enum import Enum
from uuid import uuid4

from oncelog.core.era import FIRST_ERA, Era
from oncelog.core.errors import CorruptEntry, InvalidArgument, NotFound, WrongCluster
from oncelog.core.formats.record_fields import Further, flag, no_fields, number, parse_json, rest, text
from oncelog.core.ids import LedgerId
from oncelog.core.names import DEFAULT_NAMESPACE, DEFAULT_TENANT, NamespaceName
from oncelog.core.placement.first_cluster import RESTORE
from oncelog.core.placement.level import Level, start_refusal
from oncelog.core.process_version import FIRST_VERSION, PROCESS_VERSION
from oncelog.core.records.records import ABSENT_VERSION
from oncelog.metadata_store.records.counter_store import new_counters
from oncelog.metadata_store.records.namespace_store import namespace_steps, tenant_steps
from oncelog.metadata_store.records.policies import Policies
from oncelog.metadata_store.session import paths
from oncelog.metadata_store.session.store_session import (
    CreateStep,
    Step,
    StoreSession,
    Versioned,
    WriteResult,
    create_or_write,
)

#: The format of the cluster's record.
FORMAT = 2
#: The level of a new cluster.
CREATED = Level(PROCESS_VERSION)
#: What to do when nothing shows whether a cluster existed.
CREATE_OR_RESTORE = (
    "if this cluster is new, create it with `python -m oncelog.metadata --create-cluster`; if it existed before, then "
    f"ZooKeeper has lost its data, or the address or path is wrong: do not create another one, {RESTORE}"
)


class ClusterState(Enum):
    SERVING = "serving"
    #: a restore writes the records of the era; processes wait
    RESTORING = "restoring"


class Rights(Enum):
    """Whether grants are effective. After a restore that asked too few nodes they wait for a confirmation."""

    OPEN = "open"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class ClusterRecord:
    """cluster_id: chosen at random when the cluster is created; everything of the cluster carries it. A new cluster has
    the level of the program that creates it. ack_quorum: the lowest that any owner ever wrote with; 0: none yet.
    gave_up_in: the number of the newest era whose restore was beyond the bound, so that every topic gave up; 0: none.
    counters: whether the counters of ids were created with the cluster, or since: one that is missing was lost.
    further: see `core.formats.record_fields`."""

    cluster_id: str
    level: Level = CREATED
    era: Era = FIRST_ERA
    state: ClusterState = ClusterState.SERVING
    rights: Rights = Rights.OPEN
    ack_quorum: int = 0
    gave_up_in: int = 0
    counters: bool = False
    further: Further = field(default_factory=no_fields, hash=False)

    @property
    def owed_below(self) -> LedgerId:
        """The first ledger id of that era: a chain with an entry behind the head of a later ledger says what was given
        up. 0: nothing was."""
        return LedgerId(Era(self.gave_up_in, "").first_id if self.gave_up_in else 0)


_FIELDS = (
    "cluster_id", "format", "level", "announced", "era", "restore_id", "state", "rights", "ack_quorum", "gave_up_in",
    "counters",
)  # fmt: skip


class ClusterStore:
    def __init__(self, session: StoreSession) -> None:
        self._session = session

    async def establish(self, cluster_id: str | None = None) -> ClusterRecord:
        """Create the cluster unless it exists, and return its record. Retries until the outcome is known.

        cluster_id: the required id, which a new cluster gets, too. None: any id; a new cluster gets a random one.
        Raises WrongCluster, StoreUnavailable.
        """
        await self._session.ensure_path("")
        while True:
            record = await self.read()
            if record is not None:
                return _checked(record, cluster_id)
            await self._session.transact(_creation(ClusterRecord(cluster_id or uuid4().hex, counters=True)))

    async def complete(self, record: ClusterRecord) -> None:
        """Create the folders that a cluster of an older version lacks, and once the counters. record: its own. Raises
        StoreUnavailable."""
        if record.state is ClusterState.SERVING:
            session = self._session.below(paths.era_root(record.era.number))
            for folder in (paths.DELETIONS, paths.TOMBSTONES, paths.PROOFS, paths.VERDICTS):
                await session.ensure_path(folder)
            if record.era == FIRST_ERA and not record.counters:
                await self._create_counters()

    async def _create_counters(self) -> None:
        """To an older version a counter that is missing is one that has given no id."""
        for path, data in new_counters().items():
            await create_or_write(self._session, path, data, version=ABSENT_VERSION)
        while (found := await self.find()) is not None and not found.value.counters:
            await self.write(replace(found.value, counters=True), version=found.version)

    async def read(self) -> ClusterRecord | None:
        """None if there is no cluster at this root. Raises WrongCluster for one of another format, StoreUnavailable,
        CorruptEntry."""
        found = await self.find()
        return None if found is None else found.value

    async def find(self) -> Versioned[ClusterRecord] | None:
        """The record after a sync, with its version. Raises as `read`."""
        node = await self._session.read(paths.CLUSTER)
        return None if node is None else Versioned(decode_cluster(node.data), node.version)

    async def find_replaceable(self) -> tuple[Versioned[ClusterRecord] | None, int]:
        """What a restore replaces: (the record; None if there is none that can be read; the version of what is there).
        Raises WrongCluster for a format of a newer version, StoreUnavailable."""
        node = await self._session.read(paths.CLUSTER)
        if node is None:
            return None, ABSENT_VERSION
        try:
            return Versioned(decode_cluster(node.data), node.version), node.version
        except CorruptEntry:
            return None, node.version

    async def write(self, record: ClusterRecord, *, version: int) -> WriteResult:
        """One compare-and-set; ABSENT_VERSION creates. Raises StoreUnavailable, NotFound if there is no root."""
        return await create_or_write(self._session, paths.CLUSTER, encode_cluster(record), version=version)

    async def lower_ack_quorum(self, ack_quorum: int) -> None:
        """Write that ledgers have this ack quorum, unless the record names a lower one: so many storage nodes must hold
        a note, and one fewer may be missing in a restore. Retries until the record says so, and that is noted.

        Raises NotFound, StoreUnavailable.
        """
        while True:
            await self.require()
            found = await self.find()
            if found is not None:
                if 0 < found.value.ack_quorum <= ack_quorum:
                    # By another owner, or an earlier attempt of this one, whose note too few nodes have.
                    await self._session.note([paths.CLUSTER])
                    return
                await self.write(replace(found.value, ack_quorum=ack_quorum), version=found.version)

    async def require(self, cluster_id: str | None = None) -> ClusterRecord:
        """The record of a cluster that must exist, with this id unless None. Raises NotFound, WrongCluster."""
        record = await self.read()
        if record is None:
            raise NotFound(f"ZooKeeper has no record of a cluster: {CREATE_OR_RESTORE}")
        return _checked(record, cluster_id)


def _checked(record: ClusterRecord, cluster_id: str | None) -> ClusterRecord:
    if cluster_id is not None and record.cluster_id != cluster_id:
        raise WrongCluster(
            f"this ZooKeeper root holds cluster {record.cluster_id}, not {cluster_id}: correct the address or the root",
            found=record.cluster_id,
            expected=cluster_id,
        )
    return record


def _creation(record: ClusterRecord) -> list[Step]:
    steps: list[Step] = [CreateStep(paths.CLUSTER, encode_cluster(record)), *map(CreateStep, paths.FOLDERS)]
    steps += [CreateStep(path, data) for path, data in new_counters().items()]
    steps += tenant_steps(DEFAULT_TENANT)
    steps += namespace_steps(NamespaceName(DEFAULT_TENANT, DEFAULT_NAMESPACE), Policies())
    return steps


def refuse_unknown_level(record: ClusterRecord, version: int = PROCESS_VERSION) -> None:
    """Raises WrongCluster unless a program of this version may take part in the cluster."""
    refusal = start_refusal(record.level, version)
    if refusal is not None:
        raise WrongCluster(refusal, level=record.level.stored, announced=record.level.announced, known=version)


def encode_cluster(record: ClusterRecord) -> bytes:
    fields = {
        **record.further,
        "cluster_id": record.cluster_id,
        "format": FORMAT,
        "level": record.level.stored,
        "announced": record.level.announced,
        "era": record.era.number,
        "restore_id": record.era.restore_id,
        "state": record.state.value,
        "rights": record.rights.value,
        "ack_quorum": record.ack_quorum,
        "gave_up_in": record.gave_up_in,
        "counters": record.counters,
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_cluster(data: bytes) -> ClusterRecord:
    """Raises CorruptEntry, WrongCluster for a format of another version, and below the first level."""
    try:
        fields = parse_json(data)
        cluster_id, form = text(fields, "cluster_id"), number(fields, "format")
        if form > FORMAT:
            raise WrongCluster(
                f"the cluster has format {form}; this version reads formats up to {FORMAT}: start a newer one"
            )
        level = number(fields, "level") if form == FORMAT else 0
        if level < FIRST_VERSION:
            raise WrongCluster(
                f"the cluster is below level {FIRST_VERSION}, the lowest that this version reads: create a new one, "
                "with empty storage directories"
            )
        return ClusterRecord(
            cluster_id,
            Level(level, number(fields, "announced")),
            Era.checked(number(fields, "era"), text(fields, "restore_id")),
            ClusterState(text(fields, "state")),
            Rights(text(fields, "rights")),
            number(fields, "ack_quorum"),
            number(fields, "gave_up_in"),
            flag(fields, "counters"),
            rest(fields, _FIELDS),
        )
    except (ValueError, KeyError, TypeError, InvalidArgument) as error:
        raise CorruptEntry(f"cannot read the cluster record: {error!r}; {RESTORE}") from error
