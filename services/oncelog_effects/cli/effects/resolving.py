"""`oncelog effects resolve`: what an operator has found about an effect that is there in part."""

import asyncio
from typing import TYPE_CHECKING

from oncelog.cli.admin.confirmation import confirm
from oncelog.core.errors import InvalidArgument, NotFound
from oncelog.core.names import parse_topic
from oncelog_effects.core.effects.redis_rows import Resolution

if TYPE_CHECKING:
    from oncelog_effects.redis_store import RedisEffects

_MEANING = {
    Resolution.APPLIED: "take the effect of {which} for applied: what is missing of it stays missing",
    Resolution.AGAIN: "apply {which} again: what is there of the effect takes place a second time",
    Resolution.DEAD_LETTER: "make {which} a dead letter: what is there of the effect stays, and nothing is added",
}


def resolution_of(*, applied: bool, again: bool, dead_letter: bool) -> Resolution:
    """Raises InvalidArgument."""
    chosen = {Resolution.APPLIED: applied, Resolution.AGAIN: again, Resolution.DEAD_LETTER: dead_letter}
    found = [resolution for resolution, is_chosen in chosen.items() if is_chosen]
    if len(found) != 1:
        raise InvalidArgument("choose one of --applied, --again and --dead-letter", field="resolution")
    return found[0]


def resolve(effects: "RedisEffects", topic: str, subscription: str, resolution: Resolution, *, yes: bool) -> str:
    """Of a topic or one of its partitions. Raises InvalidArgument, NotFound, StoreUnavailable."""
    wanted = parse_topic(topic)
    found = [
        (source, names, partial)
        for source, names, partial in asyncio.run(effects.partials())
        if names.subscription == subscription and parse_topic(names.topic) == wanted
    ]
    if not found:
        raise NotFound(
            f"{effects.place} has no effect of {topic} for subscription {subscription} that is there in part; of a "
            "topic with partitions, name the partition: NAME-partition-N"
        )
    if len(found) > 1:
        ids = ", ".join(source.topic_id for source, _, _ in found)
        raise InvalidArgument(f"{topic} was deleted and created again (topic ids {ids}): ask for help", field="topic")
    ((source, names, partial),) = found
    which = f"message {partial.first} of {names.topic}"
    if partial.following - partial.first > 1:
        which = f"the messages {partial.first} to {partial.following - 1} of {names.topic}"
    confirm(yes, lambda: _MEANING[resolution].format(which=which), typed=subscription)
    row = asyncio.run(effects.resolve(source, resolution))
    return f"{names.topic} goes on at index {row.position}: start the program"
