"""Makes copies of ZooKeeper's records, and keeps them on storage nodes and in a directory of the operator.

Rules
- The elected replica makes one each `interval_ms`, and at once when no copy is of the cluster's era: a restore has just
  written all records anew. It also makes one, RECENT_MS after the newest at the earliest, when entries were proved lost
  or given up: only these records say that they existed (hazard loss-that-only-zookeeper-knows). Once a day it pins one:
  storage nodes delete the others when their disks fill. Any replica makes one on demand, and before an operation that
  cannot be undone.
- A copy is on so many storage nodes that losing as many as may be lost leaves one: ack quorum + 1, or all there are.
- A copy that could not be stored so often is a failure, which is counted and repeated, although it may be used.
- A copy is of the era in which this process has joined. While a restore writes the next one, or has just committed it,
  the records here are those of the former era, and a copy that calls them newer would win over all that is noted since
  (hazard revoked-right-returns).
- A copy has no secrets, but names, policies and rights of all tenants: with a key (`copy_keys`) it is encrypted here.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from oncelog.core.era import FIRST_ERA, Era
from oncelog.core.errors import InvalidArgument, InvariantViolated, NotFound, OncelogError, ServiceUnavailable
from oncelog.core.ids import Incarnation
from oncelog.core.rendezvous import ranked
from oncelog.metadata.repair.cluster_watch import ClusterWatch, Losses
from oncelog.metadata_store.copies.copy_file import FILE_BYTES_MAX, CopyHeader, CopyManifest, CopyWriter
from oncelog.metadata_store.copies.copy_folder import created_of, era_of_copy, keep_in, name_of
from oncelog.metadata_store.copies.copy_keys import CopyKey, read_keys
from oncelog.metadata_store.copies.record_walk import RecordWalk
from oncelog.metadata_store.records.cluster_store import ClusterRecord, ClusterStore
from oncelog.metadata_store.session.store_session import StoreSession
from oncelog.rpc.codecs.restore_codec import COPY_PART_BYTES_MAX
from oncelog.storage_client.copy_calls import StoredCopy, list_copies, put_copies, read_copy_part
from oncelog.storage_client.node_calls import NodeCalls

logger = logging.getLogger(__name__)

#: How often the elected replica looks for the newest copy; a failed one is repeated after it.
LOOK_S = 60.0
PIN_INTERVAL_MS = 24 * 3600 * 1000
#: Before an operation a copy of this age is new enough: 1,000 operations must not push out the copies of a day.
RECENT_MS = 600_000
#: The copies of two weeks.
TARGET_COPIES_MAX = 336
#: After the level is raised each process sees it within seconds, and reads it again every ten: then owners begin no
#: ledger of before.
SETTLED_MS = 60_000
#: While no owner has noted its own.
_ACK_QUORUM = 2


@dataclass(frozen=True, slots=True)
class CopySettings:
    """See the settings of the metadata service."""

    interval_ms: int = 3_600_000
    key_file: Path | None = None
    target: Path | None = None
    roles: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class KeptCopy:
    """created_ms: by its name. nodes: those that have it, of the nodes that answered."""

    name: str
    created_ms: int
    size: int
    pinned: bool
    nodes: tuple[Incarnation, ...]


@dataclass(frozen=True, slots=True)
class MadeCopy:
    """manifest: what is in it. key_id: empty if it is not encrypted."""

    kept: KeptCopy
    manifest: CopyManifest
    key_id: str


@dataclass(frozen=True, slots=True)
class CopyListing:
    """copies: the newest first. unanswered: live storage nodes that did not say what they have."""

    copies: Sequence[KeptCopy]
    unanswered: Sequence[Incarnation]


class CopyPart(NamedTuple):
    """size: of the whole file. node: that has it."""

    data: bytes
    size: int
    node: Incarnation


@dataclass(slots=True)
class CopyCounts:
    """newest_ms, newest_bytes: of the newest copy that the elected replica has seen on storage nodes."""

    made: int = 0
    failed: int = 0
    newest_ms: int | None = None
    newest_bytes: int = 0
    elected: bool = False


class RecordCopies:
    """Of one replica. now_ms: the wall clock."""

    def __init__(
        self,
        session: StoreSession,
        watch: ClusterWatch,
        calls: NodeCalls,
        settings: CopySettings,
        *,
        era: Era = FIRST_ERA,
        now_ms: Callable[[], int] = lambda: int(time.time() * 1000),
    ) -> None:
        """calls: with the addresses that `watch` has seen. era: of the records below the session's root."""
        self._era = era
        self.counts = CopyCounts()
        self._session = session
        self._cluster = ClusterStore(session)
        self._watch = watch
        self._calls = calls
        self.settings = settings
        self._now_ms = now_ms
        self._lock = asyncio.Lock()
        #: the level that was seen last, and when it was first seen to be higher; None: nothing is due for it
        self._level: int | None = None
        self._raised_ms: int | None = None
        #: what this replica knew to be lost or given up when it made its last copy
        self._copied_losses: Losses = {}

    # --- making one ---------------------------------------------------------------------------------------------------

    async def create(self, *, pinned: bool = False) -> MadeCopy:
        """Make a copy now, and return when it is stored. Raises StoreUnavailable, and ServiceUnavailable that names
        where it could not be stored."""
        async with self._lock:
            try:
                made = await self._create(pinned)
            except OncelogError:
                self.counts.failed += 1
                raise
            self.counts.made += 1
            return made

    async def before(self, operation: str) -> None:
        """Make a copy before an operation that cannot be undone, unless there is a recent one. The operation goes on
        without one, because a cluster in trouble needs it: the log says so."""
        try:
            listing = await self.list()
            ages = [self._now_ms() - one.created_ms for one in listing.copies]
            if not any(0 <= age < RECENT_MS for age in ages):
                await self.create()
        except InvariantViolated:
            raise
        except OncelogError as error:
            logger.warning("no copy of ZooKeeper's records was made before %s: %s", operation, error.message)

    async def after_loss(self) -> None:
        """Copy what was just given up. If that fails, the elected replica repeats it (`look`): the log says so."""
        try:
            await self.create()
        except InvariantViolated:
            raise
        except OncelogError as error:
            logger.warning("what was given up is in no copy of ZooKeeper's records; will retry: %s", error.message)

    async def pin_before_finalize(self) -> None:
        """The copy that places the ledgers of before, which have no heads. A cluster that no storage node belongs to
        has none. Raises as `create`: the level must not be raised then."""
        seen = await self._watch.refresh()
        if any(cookie.may_return for cookie in seen.cookies.values()):
            await self.create(pinned=True)

    async def pin_after_finalize(self) -> None:
        """The ledgers that were begun since that copy have no heads either (hazard copy-before-the-mark). Raises
        ServiceUnavailable, StoreUnavailable: the level is raised."""
        try:
            await self.pin_before_finalize()
        except OncelogError as error:
            raise ServiceUnavailable(
                f"the level is raised, and no copy has the ledgers that were begun meanwhile: {error.message}. Repeat "
                "this",
                **error.details,
            ) from error

    async def _create(self, pinned: bool) -> MadeCopy:
        record = await self._cluster.require()
        if record.era != self._era:
            raise ServiceUnavailable(
                f"this metadata service has the records of era {self._era.number}, and ZooKeeper is in era "
                f"{record.era.number} since: it starts again when that era serves; then repeat it"
            )
        seen = await self._watch.refresh()
        key = await asyncio.to_thread(self._key)
        created_ms = self._now_ms()
        copy, manifest = await self._write(record, key, created_ms)
        name = name_of(created_ms, record.era, secrets.token_hex(4))
        wanted = min(holders_of(record.ack_quorum), len(seen.live))
        if self.settings.target is not None:
            await asyncio.to_thread(_write_target, self.settings.target, name, copy)
        targets = ranked(name, seen.nodes.targets)
        others = [node for node in ranked(name, seen.live) if node not in targets]
        nodes = await put_copies(self._calls.channel, [*targets, *others], wanted, name, copy, pinned=pinned)
        logger.info(
            "copied ZooKeeper's records",
            extra={"fields": {"name": name, "bytes": len(copy), "records": sum(manifest.records.values())}},
        )
        kept = KeptCopy(name, created_ms, len(copy), pinned, tuple(nodes))
        return MadeCopy(kept, manifest, "" if key is None else key.key_id)

    async def _write(self, record: ClusterRecord, key: CopyKey | None, created_ms: int) -> tuple[bytes, CopyManifest]:
        """The file. Compression and encryption do not hold up the event loop."""
        parts: list[bytes] = []
        header = CopyHeader(record.cluster_id, record.era, record.level.stored, created_ms)
        writer = CopyWriter(header, key, parts.append)
        walk = RecordWalk(self._session, now_s=asyncio.get_running_loop().time)
        async for group in walk.records(self._watch.records()):
            await asyncio.to_thread(writer.add, group)
        manifest = await asyncio.to_thread(writer.finish)
        copy = b"".join(parts)
        if len(copy) > FILE_BYTES_MAX:
            raise ServiceUnavailable(f"the copy has {len(copy)} bytes, and the limit is {FILE_BYTES_MAX}")
        return copy, manifest

    def _key(self) -> CopyKey | None:
        """Read at each copy, so that a new key needs no restart. Raises ServiceUnavailable."""
        try:
            keys = read_keys(self.settings.key_file)
        except InvalidArgument as error:
            raise ServiceUnavailable(error.message) from error
        return keys[0] if keys else None

    # --- those that there are -----------------------------------------------------------------------------------------

    async def list(self) -> CopyListing:
        """What the live storage nodes have. Raises StoreUnavailable."""
        seen = await self._watch.refresh(within_ms=2_000)
        live = sorted(seen.live)
        answers = dict(zip(live, await asyncio.gather(*map(self._held, live)), strict=True))
        found: dict[str, KeptCopy] = {}
        for node, held in answers.items():
            for one in held or ():
                known = found.get(one.name)
                nodes = (*known.nodes, node) if known else (node,)
                pinned = one.pinned or (known is not None and known.pinned)
                found[one.name] = KeptCopy(one.name, created_of(one.name), one.size, pinned, nodes)
        copies = sorted(found.values(), key=lambda one: (one.created_ms, one.name), reverse=True)
        return CopyListing(copies, [node for node, held in answers.items() if held is None])

    async def read(
        self, name: str, offset: int = 0, bytes_max: int | None = None, *, node: Incarnation | None = None
    ) -> CopyPart:
        """A part of the file. node: that has it; None: one that the list names. Raises NotFound, ServiceUnavailable."""
        count = min(bytes_max or COPY_PART_BYTES_MAX, COPY_PART_BYTES_MAX)
        nodes = (node,) if node is not None else await self._holders(name)
        failure: OncelogError | None = None
        for each in nodes:
            try:
                data, size = await read_copy_part(self._calls.channel(each), each, name, offset, count)
            except InvariantViolated:
                raise
            except OncelogError as error:
                failure = error
            else:
                return CopyPart(data, size, each)
        raise failure or NotFound(f"no live storage node has a copy {name!r}: list the copies", name=name)

    async def _holders(self, name: str) -> Sequence[Incarnation]:
        return next((one.nodes for one in (await self.list()).copies if one.name == name), ())

    async def _held(self, node: Incarnation) -> Sequence[StoredCopy] | None:
        try:
            return await list_copies(self._calls.channel(node), node)
        except InvariantViolated:
            raise
        except OncelogError as error:
            logger.debug("storage node %s did not say which copies it has: %s", node, error.message)
            return None

    # --- the elected replica ------------------------------------------------------------------------------------------

    async def run(self, elected: Callable[[], str | None]) -> None:
        """Make copies while elected; never returns. elected: the name of this replica if it is elected."""
        while True:
            self.counts.elected = elected() is not None
            if self.counts.elected:
                try:
                    await self.look()
                except InvariantViolated:
                    raise
                except OncelogError as error:
                    logger.warning("ZooKeeper's records were not copied; will retry: %s", error.message)
            await asyncio.sleep(min(LOOK_S, self.settings.interval_ms / 1000))

    async def look(self) -> None:
        """Make a copy if the newest one of this era is older than the interval, and once some time after the level was
        raised: by then every owner has seen it. While no storage node is live, there is nowhere to store it. Raises as
        `create`."""
        now_ms = self._now_ms()
        listing = await self.list()
        if not self._watch.seen.live:
            return
        # A copy of the future is of a process whose clock is wrong: it must not stand for all until then.
        known = [one for one in listing.copies if one.created_ms <= now_ms + RECENT_MS]
        self._note(known[0] if known else None)
        pinned_ms = max((one.created_ms for one in known if one.pinned), default=0)
        record = await self._cluster.require()
        newest_ms = max((one.created_ms for one in known if era_of_copy(one.name) == record.era.number), default=0)
        if self._is_settled(record.level.stored, now_ms):
            self._note((await self.create(pinned=True)).kept)
            self._raised_ms = None
            return
        losses = self._watch.losses()
        due_ms = self.settings.interval_ms if losses == self._copied_losses else RECENT_MS
        if now_ms - newest_ms < min(due_ms, self.settings.interval_ms):
            return
        made = await self.create(pinned=now_ms - pinned_ms >= PIN_INTERVAL_MS)
        self._copied_losses = losses
        self._note(made.kept)

    def _is_settled(self, level: int, now_ms: int) -> bool:
        """Whether this replica has seen the level raised, SETTLED_MS ago, and has made no copy since."""
        if self._level is not None and level > self._level:
            self._raised_ms = now_ms
        self._level = level
        return self._raised_ms is not None and now_ms - self._raised_ms >= SETTLED_MS

    def _note(self, newest: KeptCopy | None) -> None:
        self.counts.newest_ms = None if newest is None else newest.created_ms
        self.counts.newest_bytes = 0 if newest is None else newest.size

    def age_s(self) -> float | None:
        """Of the newest copy that the elected replica has seen; None: it has seen none, or another is elected."""
        newest_ms = self.counts.newest_ms
        return None if newest_ms is None or not self.counts.elected else max(0.0, (self._now_ms() - newest_ms) / 1000)


def holders_of(ack_quorum: int) -> int:
    """How many storage nodes a copy is on. ack_quorum: 0: not known."""
    return (ack_quorum or _ACK_QUORUM) + 1


def _write_target(folder: Path, name: str, copy: bytes) -> None:
    """Raises ServiceUnavailable."""
    try:
        keep_in(folder, name, copy, count_max=TARGET_COPIES_MAX)
    except OSError as error:
        raise ServiceUnavailable(f"cannot write the copy to {folder}: {error.strerror or error}") from error
