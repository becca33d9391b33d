"""The start of a process in a cluster whose parts start in any order: ZooKeeper or the cluster's record may come later.

The process waits, logs what it waits for and for how much longer, and fails at a deadline with advice, unless it can
serve what a restore needs while there is no cluster, or none whose record can be read. Errors that waiting cannot solve
(wrong credentials, another format) end the start at once. A shutdown request ends it, too. A process waits for the
record of a cluster and does not create it, unless its `find` does so.
"""

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

from oncelog.core.errors import CorruptEntry, InvalidArgument, NotFound, OncelogError, StoreUnavailable
from oncelog.core.placement.level import Level
from oncelog.metadata_store.joining.history_watch import HistoryWatch, ProvedOlder
from oncelog.metadata_store.records.cluster_store import (
    ClusterRecord,
    ClusterState,
    ClusterStore,
    refuse_unknown_level,
)
from oncelog.metadata_store.session import paths
from oncelog.metadata_store.session.kazoo_handler import ServerTls
from oncelog.metadata_store.session.store_session import StoreSession
from oncelog.metadata_store.session.zookeeper import ZooKeeperSession
from oncelog.metadata_store.session.zookeeper_connection import ZooKeeperAccess
from oncelog.metadata_store.session.zookeeper_users import read_users
from oncelog.runtime.credentials import context_trusting, parse_certificates
from oncelog.runtime.process import ExitCode, Shutdown, end_now
from oncelog.runtime.settings import ProcessSettings, variable
from oncelog.runtime.watched_file import WatchedFile

logger = logging.getLogger(__name__)

#: Timeout of one attempt to reach ZooKeeper; also the interval of log lines while it is away.
ATTEMPT_TIMEOUT_MS = 5_000
#: Pause between two reads of the cluster's record, and between two log lines about it.
RETRY_PAUSE_MS = 250
LOG_PAUSE_MS = 10_000

Connect = Callable[[int], Awaitable[StoreSession]]
#: Returns the cluster's record; raises NotFound while there is none, with the reason.
Find = Callable[[ClusterStore], Awaitable[ClusterRecord]]


class JoinedCluster(NamedTuple):
    """session: below the root of the cluster's era; base: the same one, below the cluster's root. The caller closes
    either. history: compares ZooKeeper with what this process has seen, until then."""

    session: StoreSession
    cluster: ClusterRecord
    history: HistoryWatch
    base: StoreSession


def end_process(error: OncelogError) -> None:
    """What this process knows is newer than ZooKeeper. The next start reads everything from what is there."""
    logger.critical(error.message, extra={"fields": {"code": error.code}})
    end_now(ExitCode.FAILED)


async def join_cluster(
    settings: ProcessSettings,
    shutdown: Shutdown,
    *,
    find: Find = ClusterStore.require,
    on_waiting: Callable[[str], None] | None = None,
    on_session: Callable[[StoreSession], None] | None = None,
    for_ever: bool = False,
    connect: Connect | None = None,
    on_lost: Callable[[OncelogError], None] = end_process,
    on_level: Callable[[Level], None] | None = None,
    stays_while_restoring: bool = False,
    proved_older: ProvedOlder | None = None,
) -> JoinedCluster | None:
    """Connect to ZooKeeper and read the cluster's record, waiting for both. None: the process must end.

    on_session: called with the session, at the root of the cluster, as soon as ZooKeeper is reached. for_ever: wait for
    the record without a deadline, because the process serves meanwhile what a restore needs. While ZooKeeper's records
    are being restored, each process waits without one.
    on_waiting: called with the reason whenever the start waits. connect(timeout_ms): opens a session; the default opens
    ZooKeeper's. on_lost: called when ZooKeeper turns out to have lost what this process has seen in it (hazard
    emptied-zookeeper), or when the cluster has a level that this program does not know. on_level: called with the level
    at once, and now and then. stays_while_restoring: a restore that begins later does not end this process, see
    `HistoryWatch`. proved_older: while it gives a reason, the start waits without a deadline; later a reason ends the
    process by on_lost. Raises StoreUnavailable or NotFound at the deadline, and at once Unauthenticated,
    PermissionDenied, WrongCluster.
    """
    start = _Start(
        settings,
        find,
        on_waiting,
        on_session,
        for_ever,
        connect,
        on_lost,
        on_level,
        stays_while_restoring,
        proved_older,
    )
    return await shutdown.or_result(start.join())


class _Start:
    """One start and its deadline."""

    def __init__(
        self,
        settings: ProcessSettings,
        find: Find,
        on_waiting: Callable[[str], None] | None,
        on_session: Callable[[StoreSession], None] | None,
        for_ever: bool,
        connect: Connect | None,
        on_lost: Callable[[OncelogError], None],
        on_level: Callable[[Level], None] | None,
        stays_while_restoring: bool,
        proved_older: ProvedOlder | None,
    ) -> None:
        self._stays = stays_while_restoring
        self._proved_older = proved_older
        self._on_lost = on_lost
        self._on_level = on_level
        self._find = find
        self._on_waiting = on_waiting
        self._on_session = on_session
        self._for_ever = for_ever
        self._hosts = settings.zookeeper_hosts
        users = (
            read_users(Path(path), variable("zookeeper_auth_file")) if (path := settings.zookeeper_auth_file) else ()
        )
        self._access = ZooKeeperAccess(users=users, tls=server_tls(settings))
        self._session_timeout_ms = settings.session_timeout_ms
        self._timeout_ms = settings.start_timeout_ms
        self._deadline_s = _now_s() + settings.start_timeout_ms / 1000
        self._connect = connect or self._connect_to_zookeeper

    async def join(self) -> JoinedCluster:
        base = await self._session()
        if self._on_session is not None:
            self._on_session(base)
        try:
            cluster = await self._cluster(base)
            refuse_unknown_level(cluster)
            if self._on_level is not None:
                self._on_level(cluster.level)
            session = base.below(paths.era_root(cluster.era.number))
            history = HistoryWatch(
                session,
                cluster,
                on_lost=self._on_lost,
                on_level=self._on_level,
                stays_while_restoring=self._stays,
                proved_older=self._proved_older,
            )
            return JoinedCluster(session, cluster, history, base)
        except BaseException:
            await base.close()
            raise

    async def _connect_to_zookeeper(self, timeout_ms: int) -> StoreSession:
        return await ZooKeeperSession.connect(
            self._hosts,
            session_timeout_ms=self._session_timeout_ms,
            connect_timeout_ms=timeout_ms,
            access=self._access,
            on_older=self._on_lost,
        )

    async def _session(self) -> StoreSession:
        while True:
            try:
                return await self._connect(max(1, min(ATTEMPT_TIMEOUT_MS, self._left_ms)))
            except StoreUnavailable as error:
                if self._left_ms <= 0:
                    raise StoreUnavailable(
                        f"no ZooKeeper answered at {self._hosts} within {self._timeout_ms / 1000:g} s: start it, or "
                        f"correct {variable('zookeeper_hosts')} (the last attempt: {error.message})",
                        hosts=self._hosts,
                    ) from error
                self._log_waiting("ZooKeeper", error.message)
                await asyncio.sleep(RETRY_PAUSE_MS / 1000)

    async def _cluster(self, base: StoreSession) -> ClusterRecord:
        store = ClusterStore(base)
        logged_s: float | None = None
        logged = ""
        while True:
            try:
                record = await self._find(store)
                awaited, reason = "the restore of ZooKeeper's records", why_restoring(record)
                if record.state is ClusterState.SERVING:
                    older = await self._older(base, record)
                    if older is None:
                        return record
                    reason = older
            except (StoreUnavailable, NotFound, CorruptEntry) as error:
                if self._left_ms <= 0 and not self._for_ever:
                    raise _too_late(error, self._hosts, self._timeout_ms) from error
                awaited, reason = "the cluster's record", error.message
            if logged_s is None or _now_s() - logged_s >= LOG_PAUSE_MS / 1000 or reason != logged:
                logged_s, logged = _now_s(), reason
                self._log_waiting(awaited, reason)
            await asyncio.sleep(RETRY_PAUSE_MS / 1000)

    async def _older(self, base: StoreSession, record: ClusterRecord) -> str | None:
        if self._proved_older is None:
            return None
        return await self._proved_older(base.below(paths.era_root(record.era.number)), record, True)

    def _log_waiting(self, awaited: str, reason: str) -> None:
        fields = {"reason": reason, "zookeeper": self._hosts, "left_s": max(0, self._left_ms) // 1000}
        logger.warning("waiting for %s", awaited, extra={"fields": fields})
        if self._on_waiting is not None:
            self._on_waiting(f"waiting for {awaited}: {reason}")

    @property
    def _left_ms(self) -> int:
        return int((self._deadline_s - _now_s()) * 1000)


def server_tls(settings: ProcessSettings) -> ServerTls | None:
    """How ZooKeeper's servers are verified; None: plaintext. Raises InvalidArgument for a file that cannot be used."""
    if not settings.zookeeper_tls:
        return None
    name = "zookeeper_tls_ca_file"
    path = settings.zookeeper_tls_ca_file
    ca = WatchedFile(Path(path), variable(name), parse_certificates) if path else None
    pair = settings.zookeeper_tls_certificate_file, settings.zookeeper_tls_key_file

    def context() -> ssl.SSLContext:
        made = ssl.create_default_context() if ca is None else context_trusting(ca)
        if pair[0]:
            made.load_cert_chain(*pair)
        return made

    try:
        context()
    except OSError as error:
        both = f"{variable('zookeeper_tls_certificate_file')} and {variable('zookeeper_tls_key_file')}"
        reason = getattr(error, "reason", None) or error.strerror
        raise InvalidArgument(f"{both}: {' and '.join(pair)} cannot be used ({reason})", field=name) from error
    return ServerTls(context, settings.zookeeper_tls_server_name)


def why_restoring(record: ClusterRecord) -> str:
    """Why a process waits while the records are being restored."""
    return (
        f"the records of era {record.era.number} are being restored, by restore {record.era.restore_id}: "
        "`oncelog admin backup restore` shows it, and goes on with it"
    )


def _too_late(error: OncelogError, hosts: str, timeout_ms: int) -> OncelogError:
    if isinstance(error, CorruptEntry):
        return error
    if isinstance(error, NotFound):
        return NotFound(
            f"no cluster found at {hosts} ({variable('zookeeper_hosts')}) within {timeout_ms / 1000:g} s: "
            f"{error.message}",
            hosts=hosts,
        )
    return StoreUnavailable(
        f"could not read the cluster's record at {hosts} within {timeout_ms / 1000:g} s: check ZooKeeper",
        hosts=hosts,
    )


def _now_s() -> float:
    return asyncio.get_running_loop().time()
