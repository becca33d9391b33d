"""The row of a source in Redis, which is a hash, and what stops it.

Redis undoes nothing: when a command of an effect fails, those before it have taken effect. So the position moves first,
and the row says that the effect is partial until its last command is done (hazard partial-effect-repeated).

    applying: position moves, `partial` is set -> commands -> `partial` is removed
        the first command fails -> the position moves back: nothing has taken effect, and the function runs again
        another command fails   -> `partial` stays and names it: nobody applies or claims until an operator decides

Rules
- Only an operator knows what a half effect means: `resolve` takes it for applied, has it applied again, or makes the
  message a dead letter.
- All numbers are text: the numbers of Lua are floats (hazard indexes-as-floats).
"""

from collections.abc import Mapping
from dataclasses import replace
from enum import Enum
from typing import NamedTuple

from oncelog.core.effect_errors import PartialEffect
from oncelog.core.errors import InvalidArgument
from oncelog_effects.core.effects.ordered import Rank, StoredPosition


class Partial(NamedTuple):
    """An effect of the messages from first to below following, of which a command has failed. command: its number from
    1; 0: the server has ended in between."""

    first: int
    following: int
    command: int
    error: str


class Resolution(Enum):
    """What an operator has found or done about a partial effect."""

    APPLIED = "applied"
    AGAIN = "again"
    DEAD_LETTER = "dead-letter"


def fields_of(stored: StoredPosition) -> dict[str, str]:
    return {
        "subscription_no": str(stored.rank.subscription_number),
        "redo_epoch": str(stored.rank.redo_epoch),
        "generation": str(stored.rank.generation),
        "claim": stored.claim,
        "position": str(stored.position),
        "last_message": stored.last_message,
        "pending_dead": pending_text(stored),
    }


def pending_text(stored: StoredPosition) -> str:
    return "" if stored.pending_dead is None else str(stored.pending_dead)


def stored_in(fields: Mapping[str, str]) -> StoredPosition | None:
    """fields: of the hash; empty: there is none."""
    if not fields:
        return None
    rank = Rank(int(fields["subscription_no"]), int(fields["redo_epoch"]), int(fields["generation"]))
    pending = fields["pending_dead"]
    return StoredPosition(
        rank, fields["claim"], int(fields["position"]), fields["last_message"], int(pending) if pending else None
    )


def partial_in(fields: Mapping[str, str]) -> Partial | None:
    return partial_of(fields["partial"]) if "partial" in fields else None


def partial_of(text: str) -> Partial:
    """text: as in the field `partial`; bytes that are no UTF-8 are shown as such."""
    text = text.encode(errors="surrogateescape").decode(errors="backslashreplace")
    first, following, command, error = text.split(":", 3)
    return Partial(int(first), int(following), int(command), error)


def partial_prefix(claimed: StoredPosition, following: StoredPosition) -> str:
    """The field `partial` up to the number of the command."""
    return f"{claimed.position}:{following.position}"


def error_of(partial: Partial, place: str) -> PartialEffect:
    last = partial.following - 1
    which = f"message {last}" if partial.first == last else f"the messages {partial.first} to {last}"
    return PartialEffect(
        f"the effect of {which} in {place} is there in part: command {partial.command} has failed ({partial.error}), "
        "and those before it have taken effect. See what it has done, then run `oncelog effects resolve` with "
        "--applied (all of it is there now), --again (nothing of it is there any more) or --dead-letter",
        index=partial.first,
        command=partial.command,
        error=partial.error,
    )


def resolved(stored: StoredPosition, partial: Partial, resolution: Resolution, claim: str) -> StoredPosition:
    """The row without its partial effect. claim: a new one, so that what is under way is void. Raises
    InvalidArgument."""
    match resolution:
        case Resolution.APPLIED:
            return replace(stored, claim=claim)
        case Resolution.AGAIN:
            return replace(stored, claim=claim, position=partial.first, last_message="")
        case Resolution.DEAD_LETTER:
            if partial.following - partial.first != 1:
                raise InvalidArgument(
                    f"the effect is of the messages {partial.first} to {partial.following - 1}, and one message can "
                    "become a dead letter: undo what it has done, choose --again, and run the program with batch=1",
                    field="dead_letter",
                )
            return replace(stored, claim=claim, pending_dead=partial.first)
