"""One role does not hold up the proofs of all others."""

import logging
from collections.abc import Iterator

import pytest

from oncelog.core.access import NO_ROLE
from oncelog.core.errors import LimitReached
from oncelog.core.ids import TopicId
from oncelog.core.records.status import WriteStatus
from oncelog.metadata.proof.proof_run import ProofRun
from oncelog.verify.proof import ProofState, TopicProof
from oncelog.verify.proof_turns import BYTES_PER_S_MIN, PROOFS_MAX, ROLE_PROOFS_MAX, ProofTurns, check_room
from tests.contract.proof.proving import FAST, FLIGHTS, Proving, a_log


def asked(number: int, by: str, *, state: ProofState = ProofState.QUEUED) -> TopicProof:
    return TopicProof(TopicId(f"{number:032x}"), str(FLIGHTS), by, number, FAST, 100, state=state)


def order(waiting: list[TopicProof]) -> Iterator[int]:
    turns = ProofTurns()
    while waiting:
        chosen = turns.next_of(waiting)
        waiting.remove(chosen)
        yield chosen.asked_ms


def test_roles_take_turns() -> None:
    """The role that has asked for many waits like one that has asked for one; of each, the oldest is first."""
    many = [asked(number, "ann") for number in range(1, 6)]
    assert list(order([*many, asked(6, "bob"), asked(7, "bob"), asked(8, "eve")])) == [1, 6, 8, 2, 7, 3, 4, 5]


def test_role_that_comes_back_goes_behind_those_that_wait() -> None:
    """Otherwise one that asks again at each end would have every second turn, however many wait."""
    turns = ProofTurns()
    waiting = [asked(2, "bob"), asked(3, "eve")]
    assert turns.next_of([asked(1, "ann"), *waiting]).by == "ann"
    assert turns.next_of([asked(4, "ann"), *waiting]).by == "bob"
    assert turns.next_of([asked(4, "ann"), asked(5, "bob"), asked(3, "eve")]).by == "eve"


def test_interrupted_proof_goes_on_first() -> None:
    """A part of it is done, and it would be asked to begin again at each change of the replica."""
    assert list(order([asked(1, "ann"), asked(2, "bob", state=ProofState.RUNNING)])) == [2, 1]


def test_one_role_has_half_of_the_places() -> None:
    """Without authentication there is nobody else who could need the other half."""
    half = ["ann"] * ROLE_PROOFS_MAX
    check_room(half[1:], "ann")
    check_room(half, "bob")
    check_room([NO_ROLE] * (PROOFS_MAX - 1), NO_ROLE)
    with pytest.raises(LimitReached, match="500 proofs of role ann wait already"):
        check_room(half, "ann")
    with pytest.raises(LimitReached, match="1000 proofs wait already"):
        check_room([*half, *["bob"] * ROLE_PROOFS_MAX], "eve")


def test_request_of_an_older_version_keeps_the_floor_of_pace() -> None:
    """It may be in ZooKeeper since before there was one."""
    slow = TopicProof(TopicId("0" * 32), str(FLIGHTS), "ann", 1, 64 * 1024, 1)
    run = ProofRun(slow, None, None, None)  # type: ignore[arg-type]  # nothing is read
    assert run._bytes_per_s == BYTES_PER_S_MIN


@pytest.mark.asyncio
async def test_elected_replica_gives_each_role_its_turn(caplog: pytest.LogCaptureFixture) -> None:
    """And a role with as many requests as one may have is refused, whatever their pace."""
    async with Proving.of(a_log()) as proving:
        store = proving.coordination.proofs.store
        for proof in [asked(number, "ann") for number in range(1, ROLE_PROOFS_MAX + 1)]:
            assert await store.ask(proof) is WriteStatus.OK
        with pytest.raises(LimitReached, match="of role ann"):
            await proving.ask()
        await proving.ask(by="bob")
        with caplog.at_level(logging.INFO, logger="oncelog.metadata.proof.proofs"):
            proving.elect()
            await proving.ended()
        begun = [record.fields["by"] for record in caplog.records if record.message == "a proof begins"]  # type: ignore[attr-defined]
        assert "bob" in begun[:2]
