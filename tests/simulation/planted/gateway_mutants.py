"""Planted bugs of producers and consumers for the clients of gateways, of units, and of doors. Where no run finds one,
a test of the core does: of consumers, the simulation has only those of whole entries.
"""

from collections.abc import Callable, Sequence
from typing import Any

from oncelog.core.delivery.credit import Credit
from oncelog.core.delivery.wanted import WantedConsumer
from oncelog.core.formats import epoched_ids
from oncelog.core.formats.batch import BatchHeader, order_ids
from oncelog.core.formats.outcome import ResultKind
from oncelog.core.ids import SequenceId
from oncelog.core.publishing import opening_rules, recent_batches
from oncelog.core.publishing.client_order import TokenVerdict
from oncelog.core.publishing.dedup_table import Accept, BatchVerdict, DedupTable, NothingNew
from oncelog.core.publishing.held_names import HeldNames
from oncelog.core.publishing.opening_rules import OpeningRules
from oncelog.core.publishing.producer_state import ProducerState
from oncelog.core.publishing.recent_batches import NeedIds, locate
from oncelog.core.publishing.sessions import Sessions
from oncelog.core.sdk.consumer.entries import ReceivedEntries
from oncelog.core.sdk.producer.sequence_assignment import SequenceAssignment
from oncelog.core.sdk.producer.session import ProducerSession
from oncelog_doors.core.pulsar.sends import SendEffect, Sends, WriteReceipt
from oncelog_doors.core.pulsar.verdicts import Accepted, Known, Rejected, TopicRules
from oncelog_doors.log_client import known_batches
from tests.core.delivery.test_delivery_stories import test_story
from tests.core.publishing.gateways.test_gateway_openings import (
    test_last_sequence_id_is_told_when_writes_in_flight_have_settled,
)
from tests.core.sdk.test_entry_session import (
    test_new_stream_has_the_permits_that_are_neither_used_nor_taken,
    test_oldest_message_of_the_client_is_reported_as_begun,
)
from tests.core.sdk.test_gateway_session import test_late_copy_of_an_older_epoch_fails_alone
from tests.simulation.doors import door_session
from tests.simulation.planted.planted_bug import Mutant


def _always(value: Any) -> Callable[..., Any]:
    return lambda *_, **__: value


def _opened_again(session: ProducerSession, event: Any) -> Any:
    """Every end of a session counts as one that passes."""
    return session._over(event.error) if event.session == session.session else []


def _cut(table: DedupTable, producer: ProducerState, batch: BatchHeader, accepted: int) -> BatchVerdict:
    """A unit is judged by its first and last id, as other batches are, and stored without what is known."""
    recent_batches, floor, settles_at = table.known_ids(producer)
    ids = order_ids(batch, b"")
    split = sum(1 for each in ids if each <= accepted)
    known = locate(ids[:split], recent_batches, floor=floor, mode=producer.mode)
    assert not isinstance(known, NeedIds), "the ids of units are in no entry"
    return NothingNew(known, settles_at) if split == batch.count else Accept(split, known)


_known_of = known_batches.known_of


def _with_any_place(ranges: Sequence[Any]) -> Any:
    """A receipt names the entry that holds the first message, also in another batch."""
    known, place = _known_of(ranges)
    if known not in (Known.OTHER_BATCHES, Known.PARTLY_NEW):
        return known, place
    return Known.SAME_BATCH, next((each.stored.position for each in ranges if each.stored is not None), None)


_due = Sends._due
_WRITTEN = Rejected("")


def _in_any_order(sends: Sends) -> list[SendEffect]:
    """A receipt does not wait for those of earlier SENDs."""
    effects: list[SendEffect] = []
    for at, (ids, verdict) in enumerate(sends._waiting):
        if isinstance(verdict, Accepted):
            effects.append(WriteReceipt(ids, verdict.place))
            sends._waiting[at] = (ids, _WRITTEN)
    while sends._waiting and sends._waiting[0][1] is _WRITTEN:
        sends._waiting.popleft()
    return [*effects, *_due(sends)]


_unwrap = epoched_ids.unwrap


def _first_of_all(epoch: int, sequence: int, mark: SequenceId) -> epoched_ids.Unwrapped:
    """Half of the ring of numbers is behind the mark, also where no number is: what lies before the first one is taken
    for it."""
    found = _unwrap(epoch, sequence, mark)
    behind = (sequence - epoched_ids.number_of(mark) - 1) % 2**31 >= 2**30
    if isinstance(found, epoched_ids.NumberGap) and epoched_ids.epoch_of(mark) == epoch and behind:
        return epoched_ids.Numbered(epoched_ids.first_of(epoch))
    return found


GATEWAY_MUTANTS = (
    Mutant(
        "ids of an older epoch are duplicates", "copy-of-an-older-epoch", 900_006,
        ((recent_batches, "_kind_of_older", _always(ResultKind.DUPLICATE)),),
    ),
    Mutant(
        "a number before the first one is the first one", "number-before-the-first", 900_000,
        ((epoched_ids, "unwrap", _first_of_all),),
    ),
    Mutant(
        "a late copy ends its producer", "copy-of-an-older-epoch", None,
        ((SequenceAssignment, "leaves_gap", lambda self, _: self.contiguous),),
        core_test=test_late_copy_of_an_older_epoch_fails_alone,
    ),
    Mutant(
        "tokens are ignored", "gateway-opens-anew", 6_000_003,
        ((OpeningRules, "verdict_on", _always(TokenVerdict.OF_ANOTHER)),),
    ),
    Mutant(
        "tokens of older generations are not refused", "zombie-takes-its-name-back", 6_000_037,
        ((OpeningRules, "fenced", _always(None)),),
    ),
    Mutant(
        # No run has an oracle for it: the former session ends at the latest when its writes have settled.
        "a former session lives while its writes settle", "gateways-hold-one-producer", None,
        ((Sessions, "end_of", _always(None)),),
        core_test=test_last_sequence_id_is_told_when_writes_in_flight_have_settled,
    ),
    Mutant(
        "epochs are ignored", "sessions-end-each-other", 6_000_095,
        ((opening_rules, "comes_late", _always(False)),),
    ),
    Mutant(
        "superseded sessions are opened again", "sessions-end-each-other", 6_000_002,
        ((ProducerSession, "_session_ended", _opened_again),),
    ),
    Mutant(
        "the holder of a name is not asked", "half-open-session", 6_000_001,
        ((HeldNames, "is_there", _always(True)),),
    ),
    Mutant(
        "a held name is given away at once", "half-open-session", 6_000_001,
        ((HeldNames, "is_there", _always(False)),),
    ),
    Mutant(
        "names are not kept", "name-lost-by-a-restart", 6_000_001,
        ((HeldNames, "keeps", _always(False)),),
    ),
    Mutant("units are cut", "batches-of-keys", 6_000_005, ((DedupTable, "_check_unit", _cut),)),
    Mutant(
        "places of other batches", "place-of-another-batch", 6_000_001,
        ((known_batches, "known_of", _with_any_place),),
    ),
    Mutant(
        # As Pulsar's broker judges: what is not above the highest id is a duplicate.
        "what was never stored is confirmed", "batches-of-keys", 6_000_127,
        ((door_session, "_RULES", TopicRules(accept_stale=True)),),
    ),
    Mutant("receipts in any order", "receipt-out-of-order", 6_000_017, ((Sends, "_due", _in_any_order),)),
    Mutant(
        "entries are cut at the permits", "entry-above-the-permits", None,
        ((Credit, "of", lambda self, count: min(count, self.left)),),
        core_test=test_story,
        core_arguments=("whole_entries: Shared consumers take turns with whole entries, however little each takes",),
    ),
    Mutant(
        "messages that were handed out use no permits of the next stream", "entry-above-the-permits", None,
        ((ReceivedEntries, "credit", property(lambda self: (self.left, max(0, self.permitted - self._earlier)))),),
        core_test=test_new_stream_has_the_permits_that_are_neither_used_nor_taken,
    ),
    Mutant(
        "all messages of a client are begun", "wrong-delivery-count", None,
        ((ReceivedEntries, "reported_begun", lambda self: list(self.begun)),),
        core_test=test_oldest_message_of_the_client_is_reported_as_begun,
    ),
    Mutant(
        "the gateway of an exclusive consumer is not asked", "half-open-consumer", None,
        ((WantedConsumer, "waits", _always(False)),),
        core_test=test_story,
        core_arguments=("wanted: A gateway that does not answer has lost its client",),
    ),
)  # fmt: skip
