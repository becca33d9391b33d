"""What operators change: where effects are redone, which store has them, and what it says that it has.

Rules
- Nothing is changed while consumers of the subscription are connected.
- A row is changed under its lock, only if it is still the one that was shown, and with a new claim: a program that is
  stopped and wakes up later writes nothing.
- The store is written before the log. So a command that was interrupted can be repeated. `rebind --empty` writes the
  store last: a program that begins before that is refused, because the store has no row.
"""

import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from oncelog.cli.admin.confirmation import confirm
from oncelog.cli.admin.rest import AdminApi
from oncelog.cli.admin.rest_paths import subscription_path
from oncelog.core.effect_errors import StoreSchemaTooOld
from oncelog.core.errors import Conflict, InvalidArgument, NotFound
from oncelog.core.names import parse_topic
from oncelog_effects.cli.effects.log_side import LogSide, log_sides, require_stopped
from oncelog_effects.core.effects.comparison import compared
from oncelog_effects.core.effects.ordered import Rank, StoredPosition, rank_of

if TYPE_CHECKING:
    from oncelog_effects.sql_admin import SourceRow, SqlAdmin, StoreView


def redo(api: AdminApi, topic: str, subscription: str, place: dict[str, object], where: str, *, yes: bool) -> str:
    """place: the body of a seek."""
    sides = log_sides(api, topic, subscription)
    require_stopped(sides)

    def loss() -> str:
        held = ", ".join(f"{side.topic} has messages {_messages(side)}" for side in sides)
        return (
            f"let the messages of subscription {subscription} take effect again, from {where} on ({held}); what they "
            "wrote before stays in your own tables, unless you have emptied them"
        )

    confirm(yes, loss, typed=subscription)
    api.post(f"{subscription_path(topic, subscription)}/resetcursor", {**place, "redo": True})
    return f"subscription {subscription} of {parse_topic(topic)} redoes its effects from {where} on: start the programs"


# --- adopt ------------------------------------------------------------------------------------------------------------


def adopt(api: AdminApi, admin: "SqlAdmin", topic: str, subscription: str, position: int | None, *, yes: bool) -> str:
    """position: every message below it has its effect in the store, and none from it on; None: what the store says."""
    sides = log_sides(api, topic, subscription)
    require_stopped(sides)
    view = _of_this_schema(admin.view())
    if position is not None and len(sides) > 1:
        message = f"an index belongs to one of the {len(sides)} partitions: use {topic}-partition-N"
        raise InvalidArgument(message, field="topic")
    plans = [plan for side in sides if (plan := _adoption(view, side, position)) is not None]
    if not plans:
        raise InvalidArgument("store and log agree: there is nothing to adopt", field="topic")
    confirm(yes, lambda: "; ".join(plan.loss for plan in plans), typed=subscription)
    if view.missing:
        admin.created()
    for plan in plans:
        admin.put(plan.side.source, plan.side.names, _unchanged(plan.row, plan.wanted))
    return "; ".join(f"{plan.side.topic} goes on at index {plan.wanted.position}" for plan in plans)


@dataclass(frozen=True, slots=True)
class _Adoption:
    side: LogSide
    row: "SourceRow | None"
    wanted: StoredPosition
    loss: str


def _adoption(view: "StoreView", side: LogSide, position: int | None) -> _Adoption | None:
    """None: log and store agree, and no position was given. Raises InvalidArgument, StoreMismatch."""
    effects, row = side.effects, _row_of(view, side)
    if not effects.store_id:
        raise Conflict(f"{side.topic} has no store of effects yet: start the program, which begins at the store's row")
    if effects.store_id != view.store_id:
        raise Conflict(
            f"the effects of {side.topic} are in store {effects.store_id}, and {view.place} is store {view.store_id}: "
            "use that database, or `oncelog effects rebind`"
        )
    stored = None if row is None else row.stored
    if position is None:
        if compared(stored, effects, view.store_id).trouble is None:
            return None
        if stored is None or not effects.first_index <= stored.position <= effects.next_index:
            has = "no row" if stored is None else f"index {stored.position}"
            raise InvalidArgument(
                f"the store has {has} of {side.topic}, and the topic has messages {effects.first_index} to "
                f"{effects.next_index}: say with --position below which of them every message has its effect",
                field="position",
            )
        position = stored.position
    elif not effects.first_index <= position <= effects.next_index:
        message = f"index {position} is outside of the topic's {effects.first_index} to {effects.next_index}"
        raise InvalidArgument(message, field="position", limit=effects.next_index)
    wanted = StoredPosition(rank_of(effects), uuid.uuid4().hex, position, "")
    if stored is not None and stored.position == position:
        wanted = replace(stored, rank=wanted.rank, claim=wanted.claim)
    loss = _adoption_loss(side, stored, position)
    now = compared(stored, effects, view.store_id)
    if now.trouble is None and now.position is not None:
        loss += f" (store and log agree: without this command a program goes on at index {now.position})"
    return _Adoption(side, row, wanted, loss)


def _adoption_loss(side: LogSide, stored: StoredPosition | None, position: int) -> str:
    what = f"take it that the store has the effects of all messages of {side.topic} below index {position}"
    if stored is None or stored.position == position:
        return f"{what}, and of none from there on"
    if stored.position > position:
        return f"{what}: those from {position} to {stored.position - 1} take effect, perhaps a second time"
    return f"{what}: those from {stored.position} to {position - 1} get no effect any more"


# --- rebind -----------------------------------------------------------------------------------------------------------


def rebind(
    api: AdminApi,
    new: "SqlAdmin",
    topic: str,
    subscription: str,
    *,
    old: "SqlAdmin | None",
    empty: bool,
    yes: bool,
) -> str:
    """old: the store whose rows are copied. empty: the new store has no effects of the topic. Neither: it has rows."""
    sides = [side for side in log_sides(api, topic, subscription) if side.effects.store_id]
    if not sides:
        raise Conflict(f"subscription {subscription} of {topic} has no store yet: the first program binds its own")
    require_stopped(sides)
    view = _of_this_schema(new.created())
    former = None if old is None else _of_this_schema(old.view())
    if former is not None and former.store_id == view.store_id:
        raise Conflict(
            f"{former.place} and {view.place} are both store {view.store_id}: one is a copy of the other. Use the copy "
            "as it is, without a rebind; or give it a store id of its own before: docs/effects.md#operating has the SQL"
        )
    # What a command that was interrupted has done already stays.
    open_sides = [side for side in sides if side.effects.store_id != view.store_id or _row_of(view, side) is None]
    if not open_sides:
        return f"subscription {subscription} of {topic} is bound to {view.place} already"
    plans = [(side, *_new_row(side, view, former, empty=empty)) for side in open_sides]

    def loss() -> str:
        rows = ", ".join(f"{side.topic} from index {wanted.position} on" for side, _, wanted in plans)
        return (
            f"bind subscription {subscription} to store {view.store_id} ({view.place}) instead of "
            f"{plans[0][0].effects.store_id}: {rows}; programs with the former store are refused"
        )

    confirm(yes, loss, typed=subscription)
    for side, row, wanted in plans:
        path = subscription_path(side.topic, subscription)
        stored = wanted if old is None or former is None else _fenced(old, former, side)
        if empty:
            api.put(f"{path}/store", {"store_id": view.store_id})
            api.post(f"{path}/resetcursor", {"position": "earliest", "redo": True})
        new.put(side.source, side.names, _unchanged(row, replace(stored, claim=uuid.uuid4().hex)))
        if not empty:
            api.put(f"{path}/store", {"store_id": view.store_id})
    return f"subscription {subscription} of {topic} is bound to {view.place}: start the programs with it"


def _new_row(
    side: LogSide, view: "StoreView", former: "StoreView | None", *, empty: bool
) -> tuple["SourceRow | None", StoredPosition]:
    """The row that the new store has, and the one that it gets. Raises InvalidArgument, NotFound, Conflict."""
    row = _row_of(view, side)
    if former is not None:
        copied = _row_of(former, side)
        if copied is None:
            raise NotFound(f"{former.place} has no row of the effects of {side.topic}")
        wanted = copied.stored
    elif empty:
        effects = side.effects
        # The redo outranks it, and says where to begin. What was consumed in the log is not enough to go by: of
        # messages before an earlier redo, and of those before the first program with effects, the log does not know it.
        wanted = StoredPosition(Rank(0, 0, 0), "", effects.first_index, "")
    elif row is None:
        raise InvalidArgument(
            f"{view.place} has no row of the effects of {side.topic}: copy it with --from-database, or say --empty if "
            "the new database has no effects yet",
            field="from_database",
        )
    else:
        wanted = row.stored
    if row is not None and row.stored.position != wanted.position:
        raise Conflict(
            f"{view.place} has the effects of {side.topic} up to index {row.stored.position} already, not "
            f"{wanted.position}: leave out --from-database and --empty to go on there"
        )
    return row, wanted


def _fenced(old: "SqlAdmin", former: "StoreView", side: LogSide) -> StoredPosition:
    """The row of the former store, once no transaction of it is under way and none can begin."""
    row = _row_of(former, side)
    assert row is not None, "it was there when the plan was made"
    return old.put(row.source, row.names, _unchanged(row, replace(row.stored, claim=uuid.uuid4().hex)))


# --- rows -------------------------------------------------------------------------------------------------------------


def _messages(side: LogSide) -> str:
    first, following = side.effects.first_index, side.effects.next_index
    return f"{first} to {following - 1}" if following > first else "none"


def _row_of(view: "StoreView", side: LogSide) -> "SourceRow | None":
    return next((row for row in view.rows if row.source == side.source), None)


def _of_this_schema(view: "StoreView") -> "StoreView":
    from oncelog_effects.sql_admin import schema_is_old

    if schema_is_old(view):
        raise StoreSchemaTooOld(
            f"{view.place}: the tables have schema version {view.schema_version}: run the statements of "
            f"`oncelog effects ddl --from-version {view.schema_version}` first"
        )
    return view


def _unchanged(row: "SourceRow | None", wanted: StoredPosition) -> Callable[[StoredPosition | None], StoredPosition]:
    """Decides for this row, if nobody has changed it since it was shown."""

    def decide(found: StoredPosition | None) -> StoredPosition:
        if found != (None if row is None else row.stored):
            raise Conflict("the row was changed just now: stop the programs, look at the status, and try again")
        return wanted

    return decide
