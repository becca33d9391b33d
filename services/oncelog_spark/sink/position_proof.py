"""Proof that rows are in the target, for ids that the topic owner takes for old ones without remembering them.

The log keeps the last id of a producer, and details of its newest messages only. For an id below both, its answer is
"not stored now", without whether it was ever stored (`verified` is False). Mode position never counts this as success:
it reads the target.

Rules
- Messages of one producer lie in the log in the order of their ids, so reading stops behind the highest id in question.
- Reading begins at the position that the claim of the ids names: the end of the target when the claim was made. A claim
  of an earlier run counts, too, so the journal is searched for the first claim with one of the ids. Without a claim the
  whole target is read.
"""

from collections.abc import Iterable, Sequence

from oncelog.client.client import AsyncClient
from oncelog.client.stored import stored_by
from oncelog.client.sync.wrapper import run_on
from oncelog.core.errors import Conflict, OncelogError
from oncelog.core.formats.message_id import EARLIEST, MessageId
from oncelog_spark.sink.journal_records import ClaimRecord
from oncelog_spark.sink.log import SinkLog

_SHOWN_IDS = 5


def position_before(claims: Iterable[ClaimRecord], topic: str, ids: Sequence[int]) -> str | None:
    """The position in the topic of the first claim with one of the ids: a message id in hex, "" the topic's beginning.

    None: no claim has one of them. claims: in the order of the journal. ids: not empty, ascending.
    """
    matching = (each for each in claims if each.ids.first <= ids[-1] and each.ids.last >= ids[0])
    return next((each.positions.get(topic, "") for each in matching), None)


def missing_of(log: SinkLog, topic: str, name: str, ids: Sequence[int], start: str) -> list[int]:
    """Those of the ids that are not stored in the topic under this producer name. start: a message id in hex to read
    from, "" the topic's beginning.

    Raises OncelogError, DeadlineExceeded when the log gives no further message in time.
    """
    first = MessageId.from_bytes(bytes.fromhex(start)) if start else EARLIEST
    end = log.client.last_message_id(topic)
    if end is None or first.topic_id != end.topic_id:
        first = EARLIEST  # the target is another topic of this name now

    async def missing(client: AsyncClient) -> set[int]:
        wanted = set(ids)
        async for batch in stored_by(client, topic, name, first, ids[-1], inclusive=True, timeout_s=log.timeout_s):
            wanted.difference_update(batch.sequence_ids)
        return wanted

    return sorted(run_on(log.client, missing))


def never_stored(topic: str, name: str, missing: Sequence[int]) -> OncelogError:
    """The error for rows that the log takes for old ones, and does not have."""
    shown = ", ".join(map(str, missing[:_SHOWN_IDS])) + (", …" if len(missing) > _SHOWN_IDS else "")
    return Conflict(
        f"{len(missing)} rows of {name} were not published and are not in {topic}: their sequence ids ({shown}) are "
        "below the last id that the producer has published. Either the ids of the source began again at lower numbers, "
        "or a filter of the query now passes rows that it dropped before. Publish them under another producerPrefix"
    )
