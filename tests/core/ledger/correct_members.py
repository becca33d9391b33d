"""What the members of a ledger answer to its recovery, if they work: from the entries that each of them holds."""

from collections.abc import Container

from oncelog.core.formats.entry import peek_header
from oncelog.core.ids import NO_ENTRY, EntryId
from oncelog.core.ledger.recovery import (
    FenceMember,
    MemberFenced,
    RecoveryAdd,
    RecoveryAdded,
    RecoveryRead,
    RecoveryReadAnswered,
)

#: {entry id: bytes} at one member.
Held = dict[int, bytes]


def fenced(effect: FenceMember, held: Held) -> MemberFenced:
    headers = [peek_header(data) for data in held.values()]
    confirmed = max((header.last_add_confirmed for header in headers), default=NO_ENTRY)
    topic_id = headers[0].topic_id if headers else None
    return MemberFenced(effect.ledger_id, effect.member, EntryId(max(held, default=-1)), confirmed, topic_id)


def read(
    effect: RecoveryRead, held: Held, damaged: Container[int] = (), *, entries_max: int = 1000
) -> RecoveryReadAnswered:
    """damaged: ids that the member cannot read. entries_max: of one answer, which ends before the next one."""
    found: dict[EntryId, bytes] = {}
    missing: list[EntryId] = []
    unreadable: list[EntryId] = []
    for entry_id in map(EntryId, range(effect.first, effect.first + effect.count)):
        if entry_id in damaged:
            unreadable.append(entry_id)
        elif entry_id not in held:
            missing.append(entry_id)
        elif len(found) == entries_max:
            break
        else:
            found[entry_id] = held[entry_id]
    return RecoveryReadAnswered(
        effect.ledger_id, effect.member, effect.first, found, frozenset(missing), frozenset(unreadable)
    )


def added(effect: RecoveryAdd, held: Held) -> RecoveryAdded:
    """The member holds the entries from now on."""
    held.update(effect.entries)
    return RecoveryAdded(effect.ledger_id, effect.member, tuple(entry_id for entry_id, _ in effect.entries), ok=True)
