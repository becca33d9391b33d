"""What a store and the log say about the same effects, side by side."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from oncelog.cli.admin.commands import Report
from oncelog.cli.admin.rest import AdminApi, Answer
from oncelog.core.delivery.store_binding.events import SubscriptionEffects
from oncelog.core.errors import SubscriptionNotFound, TopicNotFound
from oncelog.core.names import parse_topic
from oncelog_effects.cli.effects.log_side import LogSide, cluster_id_of, log_sides, topic_id_of
from oncelog_effects.core.effects.comparison import Comparison, compared

if TYPE_CHECKING:
    from oncelog_effects.sql_admin import SourceRow, SqlAdmin, StoreView

#: States of a source that need no operator; all others are codes of errors that end a program.
OK, LOST, REDO, UNBOUND, GONE, OTHER_CLUSTER, NO_SUBSCRIPTION = (
    "ok", "lost", "redo", "unbound", "gone", "other_cluster", "no_subscription",
)  # fmt: skip
_ROWS_ONLY = (
    "only subscriptions with a row in this database were compared. Name TOPIC and SUBSCRIPTION to compare one whose "
    "row may be missing, or that may be bound to another database"
)
_MEANING = {
    LOST: "the store has forgotten effects, perhaps because it was restored: a program that runs gets them again",
    UNBOUND: "the subscription is bound to no store yet: the first program that runs binds it",
    GONE: "the topic was deleted: delete the row, docs/effects.md#operating has the SQL",
    OTHER_CLUSTER: "the topic is in another cluster",
    NO_SUBSCRIPTION: "the subscription was deleted; a new one goes on at this position",
}


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """row: None: the store has none. side: None: the cluster was not asked, or has no such subscription."""

    row: "SourceRow | None"
    side: LogSide | None
    state: str
    message: str = ""
    comparison: Comparison | None = None

    @property
    def is_trouble(self) -> bool:
        return self.comparison is not None and self.comparison.trouble is not None


def store_status(view: "StoreView") -> Report:
    """Without a cluster."""
    return _report(view, [SourceStatus(row, None, "") for row in view.rows])


def status(api: AdminApi, admin: "SqlAdmin", wanted: tuple[str, str] | None) -> tuple[Report, bool]:
    """wanted: (topic, subscription), which are looked at also if the store has no row of them; None: all rows. The
    second value says whether a program would end with an error. Raises the errors of REST and of the store."""
    cluster_id = cluster_id_of(api)
    known: dict[tuple[str, str], SourceStatus | LogSide] = {}
    first = admin.view()
    for row in _wanted(first, wanted):
        known[row.names.topic, row.names.subscription] = _asked(api, row, cluster_id)
    for side in log_sides(api, *wanted, cluster_id=cluster_id) if wanted is not None else []:
        known.setdefault((side.topic, side.subscription), side)
    # The store is read after the log, as a program does it: what is acknowledged meanwhile is in the store already.
    view = admin.view()
    rows = {(row.names.topic, row.names.subscription): row for row in _wanted(view, wanted)}
    found = [_judged(view.store_id, rows.get(key), side) for key, side in known.items()]
    trouble = bool(view.missing) or any(each.is_trouble for each in found)
    return _report(view, found, scope="" if wanted is not None else _ROWS_ONLY), trouble


def _wanted(view: "StoreView", wanted: tuple[str, str] | None) -> list["SourceRow"]:
    if wanted is None:
        return list(view.rows)
    topic = parse_topic(wanted[0])
    return [
        row
        for row in view.rows
        if row.names.subscription == wanted[1]
        and (row.names.topic == str(topic) or row.names.topic.rpartition("-partition-")[0] == str(topic))
    ]


def _asked(api: AdminApi, row: "SourceRow", cluster_id: str) -> SourceStatus | LogSide:
    if row.names.cluster_id not in ("", cluster_id):
        return SourceStatus(row, None, OTHER_CLUSTER)
    if topic_id_of(api, row.names.topic) != row.source.topic_id:
        return SourceStatus(row, None, GONE)
    try:
        (side,) = log_sides(
            api, row.names.topic, row.names.subscription, consumed_from=row.stored.position, cluster_id=cluster_id
        )
    except SubscriptionNotFound:
        return SourceStatus(row, None, NO_SUBSCRIPTION)
    except TopicNotFound:
        return SourceStatus(row, None, GONE)
    return side


def _judged(store_id: str, row: "SourceRow | None", side: SourceStatus | LogSide) -> SourceStatus:
    if isinstance(side, SourceStatus):
        return side
    comparison = compared(None if row is None else row.stored, side.effects, store_id)
    if comparison.trouble is not None:
        return SourceStatus(row, side, comparison.trouble.code, comparison.trouble.message, comparison)
    begin = comparison.position
    # Only a redo moves the position of a row back.
    if side.effects.store_id and row is not None and begin is not None and begin < row.stored.position:
        message = f"a redo is pending: a program that runs applies the messages from index {begin} on again"
        return SourceStatus(row, side, REDO, message, comparison)
    state = UNBOUND if not side.effects.store_id else LOST if comparison.lost else OK
    return SourceStatus(row, side, state, "", comparison)


def _report(view: "StoreView", found: list[SourceStatus], scope: str = "") -> Report:
    from oncelog_effects.sql_admin import schema_is_old

    head: dict[str, object] = {
        "store": view.place, "store_id": view.store_id, "schema_version": view.schema_version,
    }  # fmt: skip
    if view.missing:
        head["missing"] = (
            f"the table {view.missing} was dropped: a program whose subscription is bound to this store ends with "
            "store_missing. Restore the table; or `oncelog effects adopt --position`"
        )
    if scope:
        head["scope"] = scope
    shown: dict[str, object] = {**head, "sources": [_shown(each) for each in found]}
    if schema_is_old(view):
        shown["note"] = (
            "the tables are of an older version: a program that may create tables brings them up to date; so do the "
            f"statements of `oncelog effects ddl --from-version {view.schema_version}`"
        )
    notes = {each.state: each.message or _MEANING.get(each.state, "") for each in found}
    shown |= {state: meaning for state, meaning in notes.items() if meaning}
    return Report(shown, {**head, "sources": [_answer(each) for each in found]})


def _shown(each: SourceStatus) -> dict[str, object]:
    row, side = each.row, each.side
    names = side.names if side is not None else row.names if row is not None else None
    assert names is not None, "a status is of a row or of a subscription"
    columns: dict[str, object] = {
        "topic": names.topic,
        "subscription": names.subscription,
        "position": "-" if row is None else row.stored.position,
    }
    if side is not None:
        columns |= {"lag": _lag(each, side.effects), "lost": each.comparison.lost_count if each.comparison else 0}
    return (
        columns
        | ({"state": each.state} if each.state else {})
        | ({} if row is None else {"updated_ms": row.updated_ms})
    )


def _lag(each: SourceStatus, effects: SubscriptionEffects) -> int:
    """Behind the row, or behind where a pending redo begins."""
    if each.state == REDO and each.comparison is not None and each.comparison.position is not None:
        return max(0, effects.next_index - each.comparison.position)
    return max(0, effects.next_index - (effects.first_index if each.row is None else each.row.stored.position))


def _answer(each: SourceStatus) -> Answer:
    row, side = each.row, each.side
    answer: dict[str, object] = {"state": each.state or None, "message": each.message or None}
    answer["store"] = None if row is None else {
        **row.source._asdict(),
        **row.names._asdict(),
        "subscription_number": row.stored.rank.subscription_number,
        "redo_epoch": row.stored.rank.redo_epoch,
        "generation": row.stored.rank.generation,
        "position": row.stored.position,
        "last_message": row.stored.last_message or None,
        "pending_dead": row.stored.pending_dead,
        "applied": row.applied,
        "updated_ms": row.updated_ms,
    }  # fmt: skip
    if side is None:
        return answer | {"log": None}
    effects = side.effects
    lost = [[first, last] for first, last in each.comparison.lost] if each.comparison is not None else []
    answer["log"] = {
        "topic": side.topic,
        "topic_id": side.topic_id,
        "subscription": side.subscription,
        "store_id": effects.store_id or None,
        "effect": effects.effect or None,
        "subscription_number": effects.number,
        "redo_epoch": effects.redo_epoch,
        "generation": effects.generation,
        "mark_delete": effects.mark_delete,
        "first_index": effects.first_index,
        "next_index": effects.next_index,
        "consumers": side.consumers,
    }
    return answer | {"lag": _lag(each, effects), "lost": lost}
