"""Where an ordered store of effects goes on in the copy of its topic.

Rules
- From the origins of stored copies only, so never behind what is not there (hazard position-ahead-of-the-copy).
- One position has to say it: everything below it took effect, nothing from it on. If copies and messages of the
  target's own are mixed so that none does, nothing is translated.
"""

from contextlib import aclosing
from typing import NamedTuple

from oncelog.client.client import AsyncClient
from oncelog.client.stored import stored_batches
from oncelog.core.errors import Conflict
from oncelog.core.names import TopicName
from oncelog_effects.mirror.positions import Origins


class Translated(NamedTuple):
    """position: the first index of the target whose message has not taken effect. copied: the index behind the newest
    copy, at the source; 0: there is no copy."""

    position: int
    copied: int


async def translated(target: AsyncClient, part: TopicName, origins: Origins, position: int) -> Translated:
    """position: at the source. Reads the whole copy. Raises Conflict if no position of the target has the same meaning;
    TopicNotFound, and as readers."""
    found: int | None = None
    following = copied = 0
    async with aclosing(stored_batches(target, str(part))) as batches:
        async for batch in batches:
            origin = batch.origin_of(0)
            done = 0
            if origin is not None and Origins(origin.cluster_id, origin.message_id.topic_id) == origins:
                copied = origin.index + batch.count
                done = min(max(0, position - origin.index), batch.count)
            if done and found is not None:
                raise Conflict(
                    f"{part}: the message at index {found} of the target has not taken effect, and the copy at index "
                    f"{batch.first_index} has: no position says that. Positions are translated where a mirror goes one "
                    "way, and before anybody publishes at the target"
                )
            following = batch.first_index + batch.count
            if done < batch.count and found is None:
                found = batch.first_index + done
    return Translated(following if found is None else found, copied)
