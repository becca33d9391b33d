"""Checks what producers were told against the log.

    no loss          an acknowledged message is in the log, at the position in its answer
    no ghost         every message in the log was sent, with this value
    no failure       an instance has not stored a message that was answered as not stored
    exact            a message that was answered as stale is not in the log, in no batch
    once             no (producer, id) is visible twice
    order            a producer's ids ascend along the log, and no later message of an instance overtakes an earlier one
    real time        a message that was acknowledged before another one was sent stands before it in the log
    content          a duplicate is told to differ from the stored message exactly if it does, unless this is unknown
    last id          the last sequence id in the answer to an opening is the producer's mark at that grant

A name that became free when its producer expired belongs to another producer afterwards; all rules are of one producer.
Messages stored while deduplication was off are exempt from `once`, `order` and `exact`, and from nothing else.
"""

from collections import Counter
from collections.abc import Callable, Iterator

from oncelog.core.errors import OncelogError
from oncelog.core.formats.entry import EntryHeader
from oncelog.core.formats.outcome import ResultKind, ResultRange
from oncelog.core.ids import ProducerId
from oncelog.verify.violation import Violation
from tests.oracles.fold import LogFold, MessagePlace, numbers_of
from tests.oracles.history import History, HistoryAppend, HistoryOpening

DedupEnabled = Callable[[EntryHeader], bool]
_NOT_STORED_NOW = (ResultKind.BELOW_MARK, ResultKind.STALE_SEQUENCE)


def check_appends(history: History, fold: LogFold, *, dedup_enabled: DedupEnabled = lambda _: True) -> None:
    """Raises Violation. fold: of the whole log. dedup_enabled: for an entry at its append."""
    _check_once_and_order(fold, dedup_enabled)
    _check_ghosts(history, fold)
    given = _times_given(history)
    sent = _values_sent(history)
    for append in history.appends:
        _check_answer(history, fold, append, sent)
        _check_refused(history, fold, append, given[append.opened])
        _check_stale(history, fold, append, dedup_enabled)
    _check_overtaken(history, fold)
    _check_real_time(history, fold)
    _check_last_ids(history, fold)


def _check_once_and_order(fold: LogFold, dedup_enabled: DedupEnabled) -> None:
    for producer in fold.everyone():
        mark = -1
        for number, place in _in_log_order(producer.places):
            if not dedup_enabled(fold.entries[place.position].header):
                mark = max(mark, number)
                continue
            if number <= mark:
                seen = [str(p.position) for p in producer.places[number]]
                rule = "once" if len(seen) > 1 else "order"
                raise Violation(rule, f"{producer.name!r} id {number} at {place.position} is not above {mark}: {seen}")
            mark = number


def _in_log_order(places: dict[int, list[MessagePlace]]) -> Iterator[tuple[int, MessagePlace]]:
    flat = [(place.position, place.index, number, place) for number, found in places.items() for place in found]
    for _, _, number, place in sorted(flat):
        yield number, place


Sent = dict[tuple[ProducerId, int], set[bytes]]


def _values_sent(history: History) -> Sent:
    """{(producer, id): the values that were sent under it}."""
    sent: Sent = {}
    for append in history.appends:
        pid = history.opens[append.opened].instance.producer_id
        for number, value in zip(append.ids, append.values, strict=True):
            sent.setdefault((pid, number), set()).add(value)
    return sent


def _check_ghosts(history: History, fold: LogFold) -> None:
    sent = _values_sent(history)
    for producer in fold.everyone():
        for number, places in producer.places.items():
            for place in places:
                if place.value not in sent.get((producer.producer_id, number), ()):
                    raise Violation("no ghost", f"{producer.name!r} id {number} at {place.position} was never sent")


def _times_given(history: History) -> dict[int, Counter[int]]:
    """{instance: {id: how often the instance sent it}}."""
    given: dict[int, Counter[int]] = {}
    for append in history.appends:
        given.setdefault(append.opened, Counter()).update(append.ids)
    return given


def _check_refused(history: History, fold: LogFold, append: HistoryAppend, given: Counter[int]) -> None:
    """If the instance sent an id twice, the other append may have stored it."""
    opened = history.opens[append.opened]
    producer = fold.producer(opened.instance.producer_id)
    if not append.refused or producer is None:
        return
    for number in append.ids:
        mine = [p for p in producer.places.get(number, []) if p.generation == opened.instance.generation]
        if mine and given[number] == 1:
            raise Violation(
                "no failure", f"{opened.name!r} id {number} was answered as not stored and is at {mine[0].position}"
            )


def _check_stale(history: History, fold: LogFold, append: HistoryAppend, dedup_enabled: DedupEnabled) -> None:
    opened = history.opens[append.opened]
    producer = fold.producer(opened.instance.producer_id)
    for at, number in enumerate(append.ids):
        if producer is not None and append.kind_at(at) is ResultKind.STALE_SEQUENCE:
            found = [p for p in producer.places.get(number, []) if dedup_enabled(fold.entries[p.position].header)]
            if found:
                raise Violation(
                    "exact", f"{opened.name!r} id {number} was answered as stale and is at {found[0].position}"
                )


def _check_answer(history: History, fold: LogFold, append: HistoryAppend, sent: Sent) -> None:
    opened = history.opens[append.opened]
    producer = fold.producer(opened.instance.producer_id)
    places = producer.places if producer is not None else {}
    if append.result is None or isinstance(append.result, OncelogError):
        return
    at = 0
    for part in append.result:
        same = [
            _is_stored_value(opened, places, append, at + offset, part, offset, sent) for offset in range(part.count)
        ]
        if part.content_differs is not None and part.content_differs is all(same):
            raise Violation(
                "content", f"{opened.name!r} ids {append.ids[at]}.. were told content_differs={part.content_differs}"
            )
        at += part.count


def _is_stored_value(
    opened: HistoryOpening,
    places: dict[int, list[MessagePlace]],
    append: HistoryAppend,
    at: int,
    part: ResultRange,
    offset: int,
    sent: Sent,
) -> bool:
    """Whether the log holds this very value. It may be another one if several were sent under the id, and this was not
    the first."""
    name, number, value = opened.name, append.ids[at], append.values[at]
    if part.kind in _NOT_STORED_NOW:
        return True
    found = places.get(number, [])
    if part.position is not None:
        found = [p for p in found if (p.position, p.index) == (part.position, part.offset + offset)]
    if not found:
        where = "in the log" if part.position is None else f"at {part.position} index {part.offset + offset}"
        raise Violation("no loss", f"{name!r} id {number} was answered {part.kind.name} and is not {where}")
    same = any(place.value == value for place in found)
    if not same and (part.kind is ResultKind.STORED or len(sent[opened.instance.producer_id, number]) == 1):
        raise Violation("no loss", f"{name!r} id {number}: the log holds another value")
    return same


def _check_overtaken(history: History, fold: LogFold) -> None:
    """The stored messages of an instance are a prefix of what it sent, except for known and refused messages.

    An id that is not above all earlier ids of the instance, and above the last one that its opening was told, is known
    or stale, and does not count. Nor does a unit whose first id is not: it is known or refused.
    """
    missing: dict[int, int] = {}
    highest: dict[int, int] = {}
    for append in history.appends:
        opened = history.opens[append.opened]
        producer = fold.producer(opened.instance.producer_id)
        for i, number in enumerate(append.ids):
            lowest = number if append.first is None else append.first
            if lowest <= highest.get(append.opened, opened.last_sequence_id):
                continue
            highest[append.opened] = number
            places = producer.places.get(number, []) if producer is not None else []
            mine = [p for p in places if p.generation == opened.instance.generation]
            if mine and append.opened in missing:
                raise Violation(
                    "order",
                    f"{opened.name!r} {opened.instance}: id {number} is stored, {missing[append.opened]} is not",
                )
            if not places and not append.refused and append.kind_at(i) not in _NOT_STORED_NOW:
                missing.setdefault(append.opened, number)


def _check_real_time(history: History, fold: LogFold) -> None:
    first: dict[tuple[ProducerId, int], list[int]] = {}
    for append in history.appends:
        pid = history.opens[append.opened].instance.producer_id
        answered = isinstance(append.result, tuple) and append.answered_at
        for at, number in enumerate(append.ids):
            times = first.setdefault((pid, number), [append.invoked_at, 1 << 62])
            if answered and append.kind_at(at) not in _NOT_STORED_NOW:
                times[1] = min(times[1], answered)
    latest, latest_name = 0, ""
    for entry in fold.entries.values():
        producer = None if entry.batch is None else fold.producer(entry.batch.producer_id)
        if entry.batch is None or producer is None:
            continue
        name = producer.name
        for number in numbers_of(entry):
            invoked, answered_at = first.get((producer.producer_id, number), [0, 1 << 62])
            repeated = len(producer.places[number]) > 1
            if answered_at < latest and not repeated:
                raise Violation("real time", f"{name!r} id {number} was answered before {latest_name} was sent")
            if invoked > latest and not repeated:
                latest, latest_name = invoked, f"{name!r} id {number}"


def _check_last_ids(history: History, fold: LogFold) -> None:
    for opened in history.opens:
        producer = fold.producer(opened.instance.producer_id)
        if producer is None or producer.name != opened.name:
            raise Violation("last id", f"{opened} is not in the log")
        before = [
            number
            for number, places in producer.places.items()
            if any(p.generation < opened.instance.generation for p in places)
        ]
        if opened.last_sequence_id != max(before, default=-1):
            raise Violation(
                "last id", f"{opened.name!r} received {opened.last_sequence_id}, the log has {max(before, default=-1)}"
            )
