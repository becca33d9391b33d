"""The producers of a topic, and how a name goes on in another cluster."""

from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlencode

from oncelog.client.client import BATCH_BYTES_MAX, PENDING_BYTES_MAX, AsyncClient, network_of
from oncelog.client.producing.producer import AsyncProducer
from oncelog.client.producing.sender import ProducerOptions, compression_of
from oncelog.client.rest_calls import rest, topic_path
from oncelog.core.access import Caller
from oncelog.core.errors import Conflict, Fatal
from oncelog.core.formats.entry import SequenceMode
from oncelog.core.formats.opening import OnConflict
from oncelog.core.ids import SequenceId
from oncelog.core.names import TopicName
from oncelog.core.sdk.producer.opening import ProducerSettings

_PAGE = 1_000


async def producers_of(
    client: AsyncClient, part: TopicName, timeout_ms: int | None, **filters: str | bool
) -> AsyncIterator[dict[str, Any]]:
    """Of one log, as REST shows them. filters: name_prefix, connected. Raises TopicNotFound; PermissionDenied without
    the right `admin`."""
    after: str | None = None
    while True:
        asked = {name: str(value).lower() if isinstance(value, bool) else value for name, value in filters.items()}
        query = urlencode({**asked, "limit": _PAGE} | ({} if after is None else {"after": after}))
        path = f"{topic_path(part)}/producers?{query}"
        page = await rest(client, "GET", path, timeout_ms=timeout_ms, what=f"the producers of {part}")
        for each in page["producers"]:
            yield each
        after = page["next_after"]
        if after is None:
            return


async def producer_of(client: AsyncClient, part: TopicName, name: str, timeout_ms: int | None) -> dict[str, Any] | None:
    """None: the log has no producer of this name. Raises as `producers_of`."""
    async for each in producers_of(client, part, timeout_ms, name_prefix=name):
        if each["name"] == name:
            return each
    return None


async def open_behind(
    client: AsyncClient,
    part: TopicName,
    name: str,
    mark: SequenceId,
    *,
    mode: SequenceMode,
    role: str,
    growths: int,
    timeout_ms: int | None,
) -> bool:
    """Bind the name in this cluster: ids up to `mark` count as stored (hazard producer-fails-over). role: that owns it;
    empty: the caller's. growths: as in ProducerOpened. Returns whether it was bound now; else it was already.

    Raises Conflict for a name that is there with a lower mark; ProducerBusy, PermissionDenied, DeadlineExceeded.
    """
    known = await producer_of(client, part, name, timeout_ms)
    if known is not None:
        if known["persisted"] >= mark:
            return False
        raise Conflict(
            f"producer {name} is at the target of {part} with sequence id {known['persisted']} already, and its ids up "
            f"to {mark} are copied: what it sends from id {known['persisted'] + 1} on would be stored again. Publish "
            f"there under another name, or from id {mark + 1} on"
        )
    settings = ProducerSettings(
        name=name, mode=mode, on_conflict=OnConflict.REFUSE, initial_mark=mark, growths=growths,
        on_behalf_of=Caller(role) if role else None,
    )  # fmt: skip
    options = ProducerOptions(settings, compression_of(None), BATCH_BYTES_MAX, PENDING_BYTES_MAX)
    producer = AsyncProducer(part, options, network_of(client))
    try:
        await producer.open(timeout_ms, one_log=True)
        last = producer.last_sequence_id
    finally:
        await producer.close(flush=False)
    if last < mark:
        raise Fatal(
            f"the owner of {part} has opened producer {name} without its {mark} as last sequence id: it is of an older "
            "version. Upgrade the target, delete the producer there, and run this command again"
        )
    return True
