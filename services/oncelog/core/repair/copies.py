"""The copies of a range of entries: what each storage node has read back from its disk.

A copy is sound when the node has read it from its disk and its checksum is right. `missing` and `unreadable` are
negatives. A node that does not answer, or that answers ERASED, proves nothing (hazards answer-of-a-former-member and
lost-too-early).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from oncelog.core.ids import EntryId, Incarnation
from oncelog.core.ledger.metadata import EntryRange, LedgerMetadata
from oncelog.core.repair.events import CopyVerified, VerifyCopy, VerifyStatus


class RangeCopies:
    """The answers about the ids of one range. emit: takes the VerifyCopy effects."""

    def __init__(self, record: LedgerMetadata, span: EntryRange, emit: Callable[[VerifyCopy], None]) -> None:
        self.span = span
        #: {node: {id: checksum}} of the sound copies of each node that answered
        self.sound: dict[Incarnation, dict[EntryId, int]] = {}
        #: the nodes whose answers cover the whole range
        self.answered: dict[Incarnation, None] = {}
        self.erased: dict[Incarnation, None] = {}
        self._record = record
        self._emit = emit
        #: {node: the id from which it was asked}
        self._asked: dict[Incarnation, EntryId] = {}

    def ids(self) -> Iterator[EntryId]:
        return map(EntryId, range(self.span.first, self.span.last + 1))

    def waiting(self) -> bool:
        return bool(self._asked)

    def ask(self, node: Incarnation) -> None:
        """Ask the node for its copies of the whole range; a former answer no longer counts."""
        self.sound.pop(node, None)
        self.answered.pop(node, None)
        self.erased.pop(node, None)
        self._ask_from(node, self.span.first)

    def _ask_from(self, node: Incarnation, first: EntryId) -> None:
        self._asked[node] = first
        count = self.span.last - first + 1
        self._emit(VerifyCopy(node, self._record.ledger_id, first, count, self._record.topic_id))

    def note(self, answer: CopyVerified) -> None:
        """Take an answer. If it does not reach the end of the range, the node is asked for the rest."""
        node = answer.node
        if self._asked.get(node) != answer.first:
            return
        del self._asked[node]
        if answer.status is VerifyStatus.ERASED:
            self.erased[node] = None
            return
        if answer.status is VerifyStatus.SILENT or answer.next_entry <= answer.first:
            return
        negative = dict.fromkeys((*answer.missing, *answer.unreadable))
        sound = self.sound.setdefault(node, {})
        for number, checksum in enumerate(answer.checksums, start=answer.first):
            entry_id = EntryId(number)
            if entry_id not in negative and entry_id <= self.span.last:
                sound[entry_id] = checksum
        if answer.next_entry <= self.span.last:
            self._ask_from(node, answer.next_entry)
        else:
            self.answered[node] = None

    def lacking(self, node: Incarnation, ids: Iterable[EntryId]) -> list[EntryId]:
        """Those of the ids that the node has no sound copy of."""
        held = self.sound.get(node, {})
        return [entry_id for entry_id in ids if entry_id not in held]

    def unsourced(self, nodes: Iterable[Incarnation]) -> list[EntryId]:
        """The ids of the range that none of the nodes has a sound copy of."""
        held = [self.sound[node] for node in nodes if node in self.sound]
        return [entry_id for entry_id in self.ids() if not any(entry_id in each for each in held)]

    def differing(self) -> EntryId | None:
        """The first id of which two sound copies differ (hazard differing-copies)."""
        seen: dict[EntryId, int] = {}
        for held in self.sound.values():
            for entry_id, checksum in held.items():
                if seen.setdefault(entry_id, checksum) != checksum:
                    return entry_id
        return None


def ranges_of(ids: Iterable[EntryId]) -> tuple[EntryRange, ...]:
    """Ascending ids as ranges that are not adjacent."""
    ranges: list[EntryRange] = []
    for entry_id in ids:
        if ranges and ranges[-1].last + 1 == entry_id:
            ranges[-1] = EntryRange(ranges[-1].first, entry_id)
        else:
            ranges.append(EntryRange(entry_id, entry_id))
    return tuple(ranges)


def joined(ranges: Iterable[EntryRange]) -> tuple[EntryRange, ...]:
    """The same ids, in ascending ranges that are not adjacent."""
    result: list[EntryRange] = []
    for each in sorted(ranges):
        if result and each.first <= result[-1].last + 1:
            result[-1] = EntryRange(result[-1].first, max(result[-1].last, each.last))
        else:
            result.append(each)
    return tuple(result)


def without(ranges: Sequence[EntryRange], removed: Iterable[EntryRange]) -> tuple[EntryRange, ...]:
    """The ids of `ranges` that are not in `removed`."""
    left = list(ranges)
    for hole in removed:
        cut: list[EntryRange] = []
        for each in left:
            if each.first < hole.first <= each.last or each.first <= hole.last < each.last:
                if each.first < hole.first:
                    cut.append(EntryRange(each.first, EntryId(hole.first - 1)))
                if hole.last < each.last:
                    cut.append(EntryRange(EntryId(hole.last + 1), each.last))
            elif hole.last < each.first or hole.first > each.last:
                cut.append(each)
        left = cut
    return tuple(left)


def chunks(ranges: Iterable[EntryRange], entries_max: int) -> Iterator[EntryRange]:
    """The same ids in ranges of at most `entries_max` ids."""
    for each in ranges:
        for first in range(each.first, each.last + 1, entries_max):
            yield EntryRange(EntryId(first), EntryId(min(first + entries_max - 1, each.last)))
