"""Who may claim the store of an ordered source, from where on it applies, and what it has lost."""

from dataclasses import replace

import pytest

from oncelog.core.acks.changes import IndexRange
from oncelog.core.delivery.store_binding.events import SubscriptionEffects
from oncelog.core.effect_errors import EffectsFenced, RedoLost, StoreAhead, StoreMissing, StoreTooOld
from oncelog.core.errors import StoreMismatch
from oncelog.core.ids import Generation, SeekEpoch
from oncelog_effects.core.effects import ordered
from oncelog_effects.core.effects.ordered import (
    AT_SUBSCRIPTION,
    Outranked,
    Rank,
    Received,
    Step,
    StoredPosition,
    claimed,
    found_at,
    is_under_grant,
    lost,
    next_step,
    outranked_by,
    passes_gap,
    went_back,
)
from tests.core.delivery.bound_log import LOG, STORE

ROW = StoredPosition(Rank(2, 0, 2), "0" * 32, 45, "message 44")
UNBOUND = replace(LOG, store_id="", effect="", consumed=())


def test_claim_keeps_the_position_and_takes_the_rank() -> None:
    assert claimed(ROW, LOG, STORE, "c") == replace(ROW, rank=Rank(2, 0, 3), claim="c")


def test_first_claim_begins_where_the_subscription_is() -> None:
    assert claimed(None, UNBOUND, STORE, "c") == StoredPosition(Rank(2, 0, 3), "c", 40, "")
    assert claimed(ROW, UNBOUND, STORE, "c").position == 45  # of an earlier subscription of the same topic


@pytest.mark.hazard("effects-table-dropped")
def test_row_that_must_be_there_is_missed() -> None:
    with pytest.raises(StoreMissing, match="oncelog effects rebind --empty"):
        claimed(None, LOG, STORE, "c")


@pytest.mark.hazard("two-stores-take-turns")
def test_other_store_is_refused() -> None:
    with pytest.raises(StoreMismatch, match="0b0b"):
        claimed(ROW, LOG, "0b" * 16, "c")


@pytest.mark.parametrize("redo_epoch", [0, 4])
def test_store_that_keeps_nothing_is_where_the_subscription_is(redo_epoch: int) -> None:
    """At each claim, so also after a part of a redo. After a seek back nothing is taken for lost."""
    log = replace(LOG, redo_epoch=SeekEpoch(redo_epoch), redo_index=12, mark_delete=20)
    at = claimed(AT_SUBSCRIPTION, log, STORE, "c")
    assert at == replace(AT_SUBSCRIPTION, rank=Rank(2, redo_epoch, 3), claim="c", position=20)
    assert lost(at, log) == ()
    with pytest.raises(StoreMismatch):
        claimed(AT_SUBSCRIPTION, log, "0b" * 16, "c")


def test_store_that_keeps_its_position_alone_is_there_for_every_rank() -> None:
    """A redo does not move it: what it has is stored. What it lacks of what was consumed is lost."""
    log = replace(LOG, redo_epoch=SeekEpoch(4), redo_index=12)
    at = claimed(found_at(30, "message 29"), log, STORE, "c")
    assert (at.position, at.last_message, at.rank) == (30, "message 29", Rank(2, 4, 3))
    assert lost(at, log) == (IndexRange(30, 39),)


@pytest.mark.hazard("recreated-subscription-outranked")
def test_recreated_subscription_outranks_the_old_one() -> None:
    """Its generations begin again at 1."""
    old = replace(ROW, rank=Rank(1, 0, 40))
    assert claimed(old, replace(LOG, generation=Generation(1)), STORE, "c").rank == Rank(2, 0, 1)


@pytest.mark.hazard("redo-restored-to-before")
@pytest.mark.parametrize("rank", [Rank(2, 0, 9), Rank(1, 7, 9)], ids=str)
def test_redo_begins_where_the_log_says(rank: Rank) -> None:
    """Also if the store was restored to before the redo's first claim, and also in a recreated subscription."""
    redo = replace(LOG, seek_epoch=SeekEpoch(4), redo_epoch=SeekEpoch(4), redo_index=12)
    row = ordered.claimed(replace(ROW, rank=rank), redo, STORE, "c")
    assert row == StoredPosition(Rank(2, 4, 3), "c", 12, "")
    assert claimed(replace(ROW, rank=Rank(2, 4, 2)), redo, STORE, "c").position == 45


@pytest.mark.hazard("redo-hides-what-is-before-it")
def test_redo_is_never_ahead_of_a_restored_store() -> None:
    """It lacks what is before the redo's place, and that is lost, too."""
    redo = replace(LOG, redo_epoch=SeekEpoch(4), redo_index=80, consumed=(IndexRange(20, 89),), mark_delete=90)
    found = claimed(replace(ROW, position=50), redo, STORE, "c")
    assert (found.position, found.last_message, found.rank.redo_epoch) == (50, ROW.last_message, 4)
    assert lost(found, redo) == (IndexRange(50, 89),)


@pytest.mark.parametrize("rank", [Rank(2, 0, 4), Rank(2, 1, 1), Rank(3, 0, 1)], ids=str)
def test_lower_rank_never_claims(rank: Rank) -> None:
    with pytest.raises(Outranked):
        claimed(replace(ROW, rank=rank), LOG, STORE, "c")


def test_what_a_higher_rank_in_the_store_means() -> None:
    """The log, asked again, knows of the other consumer; or it has forgotten what the store remembers."""
    assert isinstance(outranked_by(Rank(2, 0, 4), replace(LOG, generation=Generation(4))), EffectsFenced)
    assert isinstance(outranked_by(Rank(2, 1, 1), LOG), RedoLost)
    assert isinstance(outranked_by(Rank(2, 0, 4), LOG), StoreAhead)
    assert isinstance(outranked_by(Rank(3, 0, 1), LOG), StoreAhead)


@pytest.mark.hazard("claim-under-the-grant-of-another")
def test_only_the_consumer_whose_grant_the_log_names_claims() -> None:
    """A generation orders claims only if one consumer has it. 0: the consumer is not active any more."""
    assert [is_under_grant(LOG, Generation(each)) for each in (0, 2, 3, 4)] == [False, False, True, False]


def test_store_that_has_everything_has_lost_nothing() -> None:
    """Acknowledgements come behind the store, and what was skipped is no loss."""
    assert lost(ROW, LOG) == ()
    assert lost(replace(ROW, position=40), LOG) == ()
    assert lost(replace(ROW, position=20), replace(LOG, consumed=(IndexRange(0, 19),))) == ()


def test_restored_store_has_lost_what_consumers_acknowledged() -> None:
    log = replace(LOG, consumed=(IndexRange(0, 24), IndexRange(30, 39), IndexRange(60, 60)))
    assert lost(replace(ROW, position=20), log) == (IndexRange(20, 24), IndexRange(30, 39), IndexRange(60, 60))
    assert lost(replace(ROW, position=27), log) == (IndexRange(30, 39), IndexRange(60, 60))


@pytest.mark.parametrize(
    ("position", "log"),
    [(5, LOG), (20, replace(LOG, forgotten_below=21, known_from=21, consumed=(IndexRange(21, 39),)))],
    ids=["deleted", "forgotten"],
)
def test_store_older_than_the_log_is_told(position: int, log: SubscriptionEffects) -> None:
    with pytest.raises(StoreTooOld, match="restore a newer backup") as error:
        lost(replace(ROW, position=position), log)
    assert error.value.details["position"] == position


def test_log_older_than_the_store_is_told() -> None:
    assert lost(replace(ROW, position=100), LOG) == ()
    with pytest.raises(StoreAhead, match="ends at 100"):
        lost(replace(ROW, position=101), LOG)


def step(index: int | None, *, epoch: int = 3, generation: int = 2, is_void: bool = False) -> Step:
    """Of a consumer whose claim is ROW, and knows of seek epoch 3. index: None: nothing waits."""
    first = None if index is None else Received(index, SeekEpoch(epoch), is_void)
    return next_step(first, ROW, SeekEpoch(3), Generation(generation))


def test_messages_take_effect_from_the_position_on() -> None:
    assert [step(index) for index in (None, 44, 45, 46)] == [
        Step.APPLY, Step.ACKNOWLEDGE, Step.APPLY, Step.CHECK_GAP
    ]  # fmt: skip


@pytest.mark.hazard("redo-under-an-old-claim")
def test_message_of_a_later_seek_needs_another_claim() -> None:
    """Whatever its index is: the seek may be a redo, and then the position is another one."""
    assert {step(index, epoch=4) for index in (44, 45, 46)} == {Step.CLAIM}


@pytest.mark.hazard("received-and-forgotten")
def test_only_what_is_void_is_dropped() -> None:
    """Under another grant a claim comes first; what was received under it is kept."""
    assert step(45, generation=3) is step(None, generation=0) is Step.CLAIM
    assert step(45, generation=3, is_void=True) is Step.DROP


@pytest.mark.hazard("gap-passed-over")
def test_gap_is_passed_if_it_is_acknowledged() -> None:
    assert [passes_gap(index, LOG) for index in (39, 40, 41)] == [True, True, False]


def test_store_that_went_back_under_the_same_grant_makes_a_consumer_attach_anew() -> None:
    """Under another grant everything that is not acknowledged is delivered again anyway, and a redo is a seek."""
    older = replace(ROW, position=40, claim="c")
    assert [went_back(each, older) for each in (ROW, None, replace(ROW, position=40))] == [True, False, False]
    assert not went_back(replace(ROW, rank=Rank(2, 0, 1)), older)
