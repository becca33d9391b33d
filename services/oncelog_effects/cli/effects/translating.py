"""`oncelog effects translate`: the rows of a store for the copies of its topics."""

import asyncio
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from oncelog.cli.admin.confirmation import confirm
from oncelog.core.errors import Conflict, InvalidArgument, NotFound
from oncelog.core.names import parse_topic
from oncelog_effects.cli.mirror.options import Target
from oncelog_effects.core.effects.ordered import Rank, Source, StoredPosition
from oncelog_effects.store import SourceNames

if TYPE_CHECKING:
    from oncelog_effects.sql_admin import SourceRow, SqlAdmin

_ANSWER_S = 30.0
_ANSWER_MS = int(_ANSWER_S * 1000)


def translate(
    admin: "SqlAdmin", to: Target, topic: str, subscription: str, cluster: str | None, *, forced: bool, yes: bool
) -> str:
    """cluster: id of the source; None: the only one that the store has rows of. forced: also if the store has effects
    of messages that are not copied. Returns what was done. Raises Conflict, NotFound, InvalidArgument; the errors of
    the store and of the target."""
    target_id, plans = asyncio.run(_planned(admin, to, topic, subscription, cluster, forced=forced))
    told = "; ".join(
        f"{row.names.topic} goes on at index {position} of cluster {target_id}" for row, _, position in plans
    )
    confirm(
        yes,
        lambda: (
            f"write positions for the copies into {admin.place}: {told}. Programs at the source must be stopped: what "
            "they apply from now on would take effect at the target again"
        ),
        typed=subscription,
    )
    for plan in plans:
        names = plan.row.names
        source = Source(plan.row.source.effect, plan.topic_id, plan.row.source.partition)
        admin.put(source, SourceNames(names.topic, subscription, target_id), _begun_at(plan.position, names.topic))
    return told


def _rows(admin: "SqlAdmin", topic: str, subscription: str, cluster: str | None, target_id: str) -> "list[SourceRow]":
    wanted = parse_topic(topic)
    rows = [
        row
        for row in admin.view().rows
        if row.names.subscription == subscription
        and wanted in (parse_topic(row.names.topic), replace(parse_topic(row.names.topic), partition=None))
        and row.names.cluster_id != target_id
        and cluster in (None, row.names.cluster_id)
    ]
    clusters = sorted({row.names.cluster_id for row in rows})
    if not rows:
        raise NotFound(f"{admin.place} has no row of subscription {subscription} of {wanted} in another cluster")
    if len(clusters) > 1:
        raise InvalidArgument(
            f"the rows are of clusters {', '.join(clusters)}: say which one with --from", field="from"
        )
    return rows


class _Plan(NamedTuple):
    """topic_id, position: at the target."""

    row: "SourceRow"
    topic_id: str
    position: int


async def _planned(
    admin: "SqlAdmin", to: Target, topic: str, subscription: str, cluster: str | None, *, forced: bool
) -> tuple[str, list[_Plan]]:
    """And the id of the target's cluster."""
    from oncelog.client.rest_calls import cluster_id_of, owner_stats
    from oncelog.client.two_clusters import AT_TARGET
    from oncelog_effects.mirror.positions import Origins
    from oncelog_effects.mirror.translation import translated

    plans: list[_Plan] = []
    async with to.target(_ANSWER_S) as client:
        target_id = await cluster_id_of(client, _ANSWER_MS, where=AT_TARGET)
        for shown in _rows(admin, topic, subscription, cluster, target_id):
            # A program that is stopped and wakes up later writes nothing.
            row = replace(shown, stored=await asyncio.to_thread(admin.put, shown.source, shown.names, _fenced))
            part = parse_topic(row.names.topic)
            if row.stored.pending_dead is not None:
                raise Conflict(
                    f"message {row.stored.pending_dead} of {part} was given up, and has no dead letter yet: run the "
                    "program at the source until it has"
                )
            topic_id = str((await owner_stats(client, part, timeout_ms=_ANSWER_MS))["topic_id"])
            origins = Origins(row.names.cluster_id, row.source.topic_id)
            place = await translated(client, part, origins, row.stored.position)
            if place.copied < row.stored.position and not forced:
                raise Conflict(
                    f"the store has the effects of messages of {part} up to index {row.stored.position - 1}, and "
                    f"copies end before index {place.copied}. Let a mirror copy the rest first. If the source is lost, "
                    "use --forced: what producers send again of these messages takes effect a second time"
                )
            plans.append(_Plan(row, topic_id, place.position))
    return target_id, plans


def _fenced(found: StoredPosition | None) -> StoredPosition:
    if found is None:
        raise Conflict("the row was deleted just now: look at `oncelog effects status`")
    return replace(found, claim=uuid.uuid4().hex)


def _begun_at(position: int, topic: str) -> Callable[[StoredPosition | None], StoredPosition]:
    def decide(found: StoredPosition | None) -> StoredPosition:
        if found is None:
            return StoredPosition(Rank(0, 0, 0), uuid.uuid4().hex, position, "")
        if found.position < position:
            raise Conflict(
                f"the store has a row of the copy of {topic} at index {found.position} already: a program has begun "
                "there. Stop it, and use `oncelog effects adopt --position` in the target's cluster"
            )
        return found

    return decide
