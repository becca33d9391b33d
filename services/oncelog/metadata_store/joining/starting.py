"""What a starting process asks of ZooKeeper once it has joined its cluster: ZooKeeper may be away again by then.

The process asks again, logs what it waits for, and fails at its start's deadline with advice. A shutdown request ends
the start, too.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from oncelog.core.errors import StoreUnavailable
from oncelog.metadata_store.joining.joining import LOG_PAUSE_MS, RETRY_PAUSE_MS
from oncelog.metadata_store.records.cluster_store import ClusterStore, refuse_unknown_level
from oncelog.metadata_store.session.store_session import StoreSession
from oncelog.runtime.process import Shutdown
from oncelog.runtime.settings import ProcessSettings

logger = logging.getLogger(__name__)


async def until_answered(
    settings: ProcessSettings, shutdown: Shutdown, what: str, ask: Callable[[], Awaitable[None]]
) -> bool:
    """Call `ask` until ZooKeeper answers it. what: the subject, for logs and the error. Returns False when a shutdown
    was requested: the process must end. Raises StoreUnavailable at the deadline, and every other error at once."""
    return bool(await shutdown.or_result(_ask(settings, what, ask)))


async def registered_level(settings: ProcessSettings, shutdown: Shutdown, session: StoreSession) -> bool:
    """After the registration: whether this program knows the level, which may have been raised since it joined (hazard
    start-races-finalize). Returns and raises as `until_answered`, and raises WrongCluster."""

    async def look() -> None:
        refuse_unknown_level(await ClusterStore(session).require())

    return await until_answered(settings, shutdown, "the cluster's level", look)


async def _ask(settings: ProcessSettings, what: str, ask: Callable[[], Awaitable[None]]) -> bool:
    now_s, timeout_s = asyncio.get_running_loop().time, settings.start_timeout_ms / 1000
    deadline_s, logged_s = now_s() + timeout_s, float("-inf")
    while True:
        try:
            await ask()
        except StoreUnavailable as error:
            left_s = deadline_s - now_s()
            if left_s <= 0:
                raise StoreUnavailable(
                    f"ZooKeeper at {settings.zookeeper_hosts} did not answer for {what} within {timeout_s:g} s: check "
                    f"ZooKeeper (the last attempt: {error.message})",
                    hosts=settings.zookeeper_hosts,
                ) from error
            if now_s() - logged_s >= LOG_PAUSE_MS / 1000:
                logged_s = now_s()
                fields = {"reason": error.message, "zookeeper": settings.zookeeper_hosts, "left_s": int(left_s)}
                logger.warning("waiting for %s", what, extra={"fields": fields})
        else:
            return True
        await asyncio.sleep(RETRY_PAUSE_MS / 1000)
