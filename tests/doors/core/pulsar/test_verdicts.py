"""What the log knows of a batch, and what its client is answered."""

import pytest

from oncelog.core.ids import EntryId, LedgerId, Position
from oncelog_doors.core.pulsar.verdicts import (
    Accepted,
    Ids,
    Known,
    Rejected,
    TopicRules,
    rejection_of_kind,
    rejection_of_numbers,
    verdict_on,
)

PLACE = Position(LedgerId(5), EntryId(6))
IDS = Ids(4, 9)
ASK_ALL = TopicRules(accept_unverified=False)
ACCEPT_ALL = TopicRules(accept_stale=True, accept_other_content=True)
MIB = 1024 * 1024


@pytest.mark.hazard("place-of-another-batch")
@pytest.mark.parametrize(
    ("known", "verdict"),
    [
        (Known.STORED, Accepted(PLACE)),
        (Known.SAME_BATCH, Accepted(PLACE)),
        (Known.PARTLY_NEW, Accepted(None)),
        (Known.OTHER_BATCHES, Accepted(None)),
        (Known.UNVERIFIED, Accepted(None)),
    ],
    ids=lambda value: value.name if isinstance(value, Known) else "",
)
def test_place_is_named_only_of_the_same_batch(known: Known, verdict: Accepted) -> None:
    """A client counts the messages of its batch from the place on. In an entry that holds another batch it would name
    another message, and a reader that starts behind it would skip some."""
    assert verdict_on(known, IDS, PLACE, TopicRules()) == verdict


def test_place_that_is_not_remembered_is_none() -> None:
    """A duplicate is a success nevertheless."""
    assert verdict_on(Known.SAME_BATCH, IDS, None, TopicRules()) == Accepted(None)


@pytest.mark.hazard("id-between-stored-ids")
@pytest.mark.parametrize("known", [Known.STALE, Known.OTHER_CONTENT])
def test_loss_is_refused_and_not_acknowledged(known: Known) -> None:
    """On Pulsar the message is acknowledged, and lost. A policy of the topic makes it so here."""
    verdict = verdict_on(known, IDS, PLACE, TopicRules())
    assert isinstance(verdict, Rejected)
    assert "4 to 9" in verdict.sentence
    assert verdict_on(known, IDS, PLACE, ACCEPT_ALL) == Accepted(None)


def test_unverified_is_refused_where_a_policy_says_so() -> None:
    assert isinstance(verdict_on(Known.UNVERIFIED, IDS, None, ASK_ALL), Rejected)


@pytest.mark.parametrize("known", Known)
def test_each_finding_has_one_verdict(known: Known) -> None:
    """And with every policy that accepts, none is refused."""
    assert isinstance(verdict_on(known, IDS, PLACE, ACCEPT_ALL), Accepted)


@pytest.mark.parametrize(
    ("ids", "count", "said"),
    [
        (Ids(2**63), 1, "above 2**63 - 1"),
        (Ids(0, 2**64 - 1), 1, "above 2**63 - 1"),
        (Ids(5), 0, "at least 1"),
        (Ids(5), -(2**31), "at least 1"),
    ],
)
def test_numbers_out_of_range_are_refused(ids: Ids, count: int, said: str) -> None:
    rejected = rejection_of_numbers(ids, count)
    assert rejected is not None
    assert said in rejected.sentence


def test_numbers_at_the_limits_pass() -> None:
    """Also a highest id below the first one, which Pulsar ignores."""
    for ids in (Ids(0), Ids(2**63 - 1), Ids(0, 2**63 - 1), Ids(7, 3)):
        assert rejection_of_numbers(ids, 1) is None
    assert Ids(7, 3).last == 7


@pytest.mark.parametrize(("transaction", "marker", "said"), [(True, False, "transactions"), (False, True, "arkers")])
def test_kinds_that_are_not_offered_are_refused(transaction: bool, marker: bool, said: str) -> None:
    """Never ignored: the message would be stored as another kind of message."""
    rejected = rejection_of_kind(transaction=transaction, marker=marker)
    assert rejected is not None
    assert said in rejected.sentence
    assert rejection_of_kind(transaction=False, marker=False) is None
