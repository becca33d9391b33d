"""What every store of effects does: who claims it, and what is committed together."""

import asyncio
from dataclasses import replace

import pytest

from oncelog_effects.core.effects.ordered import Rank, StoredPosition
from oncelog_effects.store import ClaimLost
from tests.effects.contract.benches import Bench, Pause, Refused
from tests.effects.contract.positions import FIRST, NAMES, SOURCE, at, claimed, stored

pytestmark = pytest.mark.asyncio

OTHER_CLAIM = "02" * 16
#: The claim that comes first and the one that comes second are both right.
CLAIM_BEGINS_S = 0.3


async def test_store_keeps_its_id(bench: Bench) -> None:
    """Also when several programs begin at once."""
    ids = await asyncio.gather(*(bench.effects().store_id() for _ in range(4)))
    assert len({*ids, await bench.effects().store_id()}) == 1
    assert len(ids[0]) == 32


async def test_position_and_effect_are_committed_together(bench: Bench) -> None:
    effects = bench.effects()
    await claimed(effects)
    await effects.apply(SOURCE, at(0), at(3), bench.function(0, 1, 2))
    assert (await bench.numbers(), await stored(bench.effects())) == ([0, 1, 2], at(3))
    with pytest.raises(Refused):
        await effects.apply(SOURCE, at(3), at(4), bench.function(3, error=Refused()))
    assert (await bench.numbers(), await stored(bench.effects())) == ([0, 1, 2], at(3))
    await effects.apply(SOURCE, at(3), at(5), bench.function())
    assert (await bench.numbers(), await stored(bench.effects())) == ([0, 1, 2], at(5))


async def test_first_claim_finds_nothing(bench: Bench) -> None:
    """And what refuses a claim writes nothing."""
    effects = bench.effects()
    await effects.store_id()

    def refuse(row: StoredPosition | None) -> StoredPosition:
        raise Refused(row)

    with pytest.raises(Refused, match="None"):
        await effects.claim(SOURCE, NAMES, refuse)
    with pytest.raises(Refused, match="None"):
        await effects.claim(SOURCE, NAMES, refuse)
    await claimed(effects)
    with pytest.raises(Refused, match="StoredPosition"):
        await effects.claim(SOURCE, NAMES, refuse)
    assert await stored(effects) == FIRST


async def test_partitions_and_effects_have_their_own_positions(bench: Bench) -> None:
    effects = bench.effects()
    other = SOURCE._replace(partition=1)
    await claimed(effects)
    await claimed(effects, at(5), other)
    await effects.apply(SOURCE, at(0), at(1), bench.function(0))
    assert (await stored(effects), await stored(effects, other)) == (at(1), at(5))


@pytest.mark.hazard("position-without-claim")
async def test_apply_under_another_claim_or_position_writes_nothing(bench: Bench) -> None:
    """A consumer that was stopped wakes up behind its successor's claim, at the same position and at another one."""
    effects, zombie = bench.effects(), bench.effects()
    await claimed(zombie)
    await zombie.apply(SOURCE, at(0), at(1), bench.function(0))
    await claimed(effects, at(1, OTHER_CLAIM))
    for expected in (at(1), at(0), at(0, OTHER_CLAIM), at(2, OTHER_CLAIM)):
        with pytest.raises(ClaimLost):
            await zombie.apply(SOURCE, expected, at(9), bench.function(7))
    with pytest.raises(ClaimLost):
        await zombie.apply(SOURCE._replace(partition=1), at(0), at(9), bench.function(7))
    assert (await bench.numbers(), await stored(effects)) == ([0], at(1, OTHER_CLAIM))
    await effects.apply(SOURCE, at(1, OTHER_CLAIM), at(2, OTHER_CLAIM), bench.function(1))
    assert await bench.numbers() == [0, 1]


@pytest.mark.hazard("plain-read-of-a-position")
async def test_claim_decides_about_an_apply_that_is_under_way(bench: Bench) -> None:
    """It waits for it and finds its position, or voids it."""
    effects, other = bench.effects(), bench.effects()
    await claimed(effects)
    pause = Pause()
    applying = asyncio.ensure_future(effects.apply(SOURCE, at(0), at(1), bench.function(1, pause=pause)))
    await pause.reached.wait()
    found: list[int] = []

    def take(row: StoredPosition | None) -> StoredPosition:
        assert row is not None
        found.append(row.position)
        return replace(row, claim=OTHER_CLAIM)

    claiming = asyncio.ensure_future(other.claim(SOURCE, NAMES, take))
    # Long enough for a claim that waits for nothing; on a busy machine it may still come first, or second.
    done, _ = await asyncio.wait([claiming], timeout=CLAIM_BEGINS_S)
    pause.go_on.set()
    outcome = (await asyncio.gather(applying, return_exceptions=True))[0]
    await claiming
    voided = isinstance(outcome, ClaimLost)
    assert voided or (outcome is None and not done)
    assert found[-1] == (0 if voided else 1)
    assert (await bench.numbers(), (await stored(other)).position) == ([] if voided else [1], found[-1])


@pytest.mark.hazard("indexes-as-floats")
async def test_numbers_of_64_bits_are_exact(bench: Bench) -> None:
    """Above 2**53 a float has no odd numbers."""
    large = 2**63 - 2
    effects = bench.effects()
    row = replace(at(large - 1), rank=Rank(large, large - 1, large - 2))
    await claimed(effects, row)
    with pytest.raises(ClaimLost):
        await effects.apply(SOURCE, replace(row, position=large - 2), replace(row, position=large), bench.function(1))
    following = replace(row, position=large, last_message="(1,2,-1,3)")
    await effects.apply(SOURCE, row, following, bench.function(2))
    assert (await bench.numbers(), await stored(bench.effects())) == ([2], following)


async def test_restored_store_has_its_effects_and_its_position_of_then(bench: Bench) -> None:
    """What is missing can be applied again."""
    effects = bench.effects()
    await claimed(effects)
    await effects.apply(SOURCE, at(0), at(1), bench.function(0))
    restore = await bench.backup()
    await effects.apply(SOURCE, at(1), at(2), bench.function(1))
    store_id = await effects.store_id()
    await restore()
    with pytest.raises(ClaimLost):
        await effects.apply(SOURCE, at(2), at(3), bench.function(2))
    assert (await bench.numbers(), await stored(effects)) == ([0], at(1))
    await effects.apply(SOURCE, at(1), at(2), bench.function(1))
    assert (await bench.numbers(), await bench.effects().store_id()) == ([0, 1], store_id)


async def test_cancelled_apply_is_decided_by_the_next_claim(bench: Bench) -> None:
    """Whether it was cancelled in the function or behind it."""
    effects = bench.effects()
    await claimed(effects)
    pause = Pause()
    applying = asyncio.ensure_future(effects.apply(SOURCE, at(0), at(1), bench.function(1, pause=pause)))
    await pause.reached.wait()
    applying.cancel()
    pause.go_on.set()
    await asyncio.gather(applying, return_exceptions=True)

    def take(row: StoredPosition | None) -> StoredPosition:
        assert row is not None
        return replace(row, claim=OTHER_CLAIM)

    position = (await effects.claim(SOURCE, NAMES, take)).position
    assert await bench.numbers() == list(range(1, position + 1))
