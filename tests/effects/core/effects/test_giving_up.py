"""When a message of an ordered source is given up, and what the store says about it until the log has a dead letter."""

from dataclasses import replace

import pytest

from oncelog.core.ids import SeekEpoch
from oncelog_effects.core.effects.giving_up import Care, given_up, gives_up, settled
from oncelog_effects.core.effects.ordered import Rank, StoredPosition, claimed
from tests.core.delivery.bound_log import LOG, STORE
from tests.effects.core.effects.test_ordered import ROW

OWING = StoredPosition(Rank(2, 0, 3), "c", 46, "message 45", 45)


@pytest.mark.parametrize("attempts_max", [1, 2, 5])
def test_function_that_raises_runs_as_often_as_allowed(attempts_max: int) -> None:
    failures = range(attempts_max + 1)
    assert [gives_up(1, failed, attempts_max) for failed in failures] == [False] * attempts_max + [True]


def test_without_a_limit_nothing_is_given_up() -> None:
    assert not gives_up(1_000_000, 1_000_000, None)


@pytest.mark.hazard("given-up-beside-a-poison")
@pytest.mark.parametrize("learned", [True, False], ids=["in time", "too late"])
@pytest.mark.parametrize("attempts_max", [1, 2, 5])
def test_only_the_message_that_kills_its_process_is_given_up(attempts_max: int, *, learned: bool) -> None:
    """As the log counts: what a process has received and not acknowledged was begun, whether it ran or not. Of a
    process that was killed before the log has learned what it began, the lowest message counts. Nothing is
    acknowledged."""
    killer, counts, position, processes = 30, [1] * 100, 0, 0
    while position < len(counts):
        processes += 1
        assert processes <= attempts_max + 3, "it kills processes for ever"
        care, begun, killed, received = Care(50, attempts_max), [], False, 0
        while position < len(counts) and not killed:
            taken = list(range(received, min(received + care.taken_at_once(position), len(counts))))
            care.received(counts[taken[-1]], position)
            alone = care.is_needed(position)
            received = taken[-1] + 1
            begun += taken if learned or alone else []
            for index in [each for each in taken if each >= position]:
                if gives_up(counts[index], 0, attempts_max):
                    assert index == killer
                elif killer in taken[taken.index(index) :] and (index == killer or not alone):
                    killed = True
                    break
                position = index + 1
        for index in begun or [0]:
            counts[index] += killed
    assert processes >= attempts_max + 2


@pytest.mark.hazard("dead-letter-beside-the-store")
def test_position_passes_a_message_that_is_given_up() -> None:
    stored = replace(ROW, rank=Rank(2, 0, 3), claim="c")
    assert given_up(stored, 45, "message 45") == OWING
    assert settled(OWING) == replace(OWING, pending_dead=None)


@pytest.mark.hazard("dead-letter-beside-the-store")
def test_every_claim_knows_what_is_owed() -> None:
    assert claimed(OWING, LOG, STORE, "d") == replace(OWING, claim="d")


def test_redo_owes_nothing_of_before() -> None:
    """The message is delivered again."""
    redo = replace(LOG, seek_epoch=SeekEpoch(4), redo_epoch=SeekEpoch(4), redo_index=12)
    assert claimed(OWING, redo, STORE, "d").pending_dead is None
