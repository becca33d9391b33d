"""What the answer of an owner says about one batch of a client of Pulsar.

The owner compares a repeated batch with the stored one as bytes. If they are the same, it says so, and the batch has
the place of the first copy. If not, nothing is known: a client that sends a message again may write its properties in
another order, so `content_differs` is None then, and never True.
"""

from collections.abc import Sequence

from oncelog.client.values.results import AnsweredRange
from oncelog.core.errors import InvariantViolated
from oncelog.core.formats.outcome import ResultKind
from oncelog.core.ids import Position
from oncelog_doors.core.pulsar.verdicts import Known


def known_of(ranges: Sequence[AnsweredRange]) -> tuple[Known, Position | None]:
    """What is known, and the place of the entry with exactly this batch; None: there is none, or it is not known.

    ranges: of one batch, in order.
    """
    if any(each.error is not None for each in ranges):
        return Known.STALE, None
    stored = [each.stored for each in ranges if each.stored is not None]
    if not stored:
        raise InvariantViolated("the answer to a batch has no result")
    if any(each.content_differs for each in stored):
        return Known.OTHER_CONTENT, None
    kinds = {each.kind for each in stored}
    if ResultKind.STORED in kinds:
        whole = len(stored) == 1
        return (Known.STORED, stored[0].position) if whole else (Known.PARTLY_NEW, None)
    if ResultKind.BELOW_MARK in kinds:
        return Known.UNVERIFIED, None
    same = len(stored) == 1 and (ranges[0].resent or stored[0].content_differs is False)
    return (Known.SAME_BATCH, stored[0].position) if same else (Known.OTHER_BATCHES, None)
