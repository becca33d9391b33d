"""How a shell gets answers from ZooKeeper: a read is repeated until it is answered, a write is sent once."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from oncelog.core.errors import CorruptEntry, InvalidArgument, NotFound, OncelogError, StoreUnavailable
from oncelog.core.records.status import WriteStatus
from oncelog.metadata_store.session.store_session import WriteResult
from oncelog.runtime.backoff import Backoff

logger = logging.getLogger(__name__)

T = TypeVar("T")
#: Pauses after a write that ZooKeeper refused: the core may want the same again at once.
TOO_LARGE_PAUSE_MS = 1_000
NO_PARENT_PAUSE_MS = 100


async def until_answered(
    what: str,
    read: Callable[[], Awaitable[T]],
    *,
    retried: tuple[type[OncelogError], ...] = (StoreUnavailable, CorruptEntry),
    failed: Callable[[OncelogError], None] = lambda error: None,
) -> T:
    """Repeat a read until it is answered. Reads change nothing.

    what: the name of what is read, for logs. retried: the other errors are raised. A damaged record is read again until
    it is repaired, because nothing can be decided without it. failed: called with each error.
    """
    backoff = Backoff()
    while True:
        try:
            return await read()
        except retried as error:
            failed(error)
            level = logging.ERROR if isinstance(error, CorruptEntry) else logging.WARNING
            logger.log(level, "cannot read %s; will retry: %s", what, error.message)
            await backoff.pause()


async def sent_once(write: Awaitable[WriteResult]) -> WriteResult:
    """The result of a write. Without a definite answer it is UNKNOWN, and the core decides what follows."""
    try:
        return await write
    except StoreUnavailable:
        return WriteResult(WriteStatus.UNKNOWN)
    except InvalidArgument as error:
        # A record that is too large for ZooKeeper was not written. Only its topic stops.
        logger.error("cannot write a record: %s", error.message)
        await asyncio.sleep(TOO_LARGE_PAUSE_MS / 1000)
        return WriteResult(WriteStatus.CONFLICT)
    except NotFound as error:
        # The parent does not exist, so nothing was written. The topic was deleted, or the tree is to be repaired.
        logger.warning("cannot write a record: %s", error.message)
        await asyncio.sleep(NO_PARENT_PAUSE_MS / 1000)
        return WriteResult(WriteStatus.CONFLICT)
