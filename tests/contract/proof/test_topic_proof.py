"""The proof of a topic finds each planted damage, with its position, and never counts as good what it has not read."""

from dataclasses import replace

import pytest

from oncelog.core.ids import EntryId, LedgerId, Position, TopicId
from oncelog.core.ledger.metadata import LedgerState
from oncelog.metadata.proof.copies_check import FIRST_STEP, CopiesCheck
from oncelog.metadata.proof.log_check import CheckLimits, LogCheck, LogChecked
from oncelog.metadata.proof.throttle import Throttle
from oncelog.metadata.repair.copy_requests import CopyRequests
from oncelog.runtime.observing.events import EventFilter
from oncelog.verify.proof import Part, ProofState
from tests.contract.proof.planted_log import TOPIC_ID, PlantedLog
from tests.contract.proof.proving import FAST, FLIGHTS, Proving, a_log, done, findings, folded, verified


@pytest.mark.asyncio
async def test_sound_log_is_proved() -> None:
    """Each part was read to its end, and the range is in the verdict."""
    log = a_log()
    async with Proving.of(log) as proving:
        proving.elect()
        proof = await proving.verdict()
        assert (proof.state, proof.findings_count) == (ProofState.PROVED, 0), proof
        assert (proof.from_index, proof.until_index, proof.entries) == (0, 24, 10)
        assert proof.end == str(list(log.entries)[-1])
        assert (proof.by, proof.replica, proof.began) == ("ann", "m-1", 1)
        assert done(proof) == {"end": (3, 3), "once": (10, 10), "copies": (10, 10), "fold": (2, 2), "acks": (1, 1)}


@pytest.mark.asyncio
async def test_flipped_byte_in_one_copy_is_found() -> None:
    """The member cannot read it. The other two copies are sound, so readers notice nothing."""
    async with Proving.of(a_log()) as proving:
        proving.nodes[1].unreadable[LedgerId(2)] = {EntryId(1)}
        proving.elect()
        proof = await proving.verdict()
        assert proof.state is ProofState.FAILED
        assert findings(proof, Part.COPIES) == [
            ("2:1", "the copy on bbbbbbbb is damaged: the node cannot read it from its disk")
        ]
        [event] = proving.coordination.events.newest(EventFilter(kinds={"verification"}), limit=10)
        assert (event.level, event.topic, event.fields["state"]) == ("error", "public/default/flights", "failed")


@pytest.mark.asyncio
async def test_flipped_byte_in_an_open_ledger_is_found() -> None:
    """What is only not on the disk yet can be read from memory."""
    async with Proving.of(a_log()) as proving:
        proving.nodes[2].unreadable[LedgerId(3)] = {EntryId(0)}
        proving.elect()
        assert findings(await proving.verdict(), Part.COPIES)[0][0] == "3:0"


@pytest.mark.asyncio
async def test_copies_that_differ_are_found() -> None:
    """Both are sound for themselves, with other checksums: each copy is named with what it says."""
    log = a_log()
    async with Proving.of(log) as proving:
        changed = PlantedLog(epoch=9)
        changed.open("p")
        proving.nodes[0].copies[LedgerId(1)][EntryId(0)] = next(iter(changed.entries.values()))
        proving.elect()
        [(position, message)] = findings(await proving.verdict(), Part.COPIES)
        assert position == "1:0"
        assert [name in message for name in ("aaaaaaaa", "bbbbbbbb", "cccccccc")] == [True] * 3


@pytest.mark.asyncio
async def test_lost_copy_is_found() -> None:
    """One member lacks a closed ledger; and another one lacks one entry of a ledger that was whole."""
    async with Proving.of(a_log()) as proving:
        del proving.nodes[0].copies[LedgerId(1)]
        await proving.change(2, verified=True)
        del proving.nodes[2].copies[LedgerId(2)][EntryId(3)]
        proving.elect()
        found = findings(await proving.verdict(), Part.COPIES)
        assert [position for position, _ in found] == ["1:0", "2:3"]
        assert "aaaaaaaa does not hold ledger 1" in found[0][1]
        assert "cccccccc lacks entries 3 to 3" in found[1][1]


@pytest.mark.asyncio
async def test_entry_that_only_the_ack_quorum_has_is_counted() -> None:
    """The log promises no more before repair has seen the ledger; too few copies are a finding."""
    async with Proving.of(a_log()) as proving:
        del proving.nodes[2].copies[LedgerId(2)][EntryId(3)]
        proving.elect()
        proof = await proving.verdict()
        assert (proof.state, proof.part(Part.COPIES).thin) == (ProofState.PROVED, 1)
        del proving.nodes[1].copies[LedgerId(2)][EntryId(3)]
        proof = await proving.verdict()
        assert findings(proof, Part.COPIES) == [("2:3", "entry 3 has fewer than 2 copies, the ack quorum")]


@pytest.mark.asyncio
async def test_doubled_batch_is_found() -> None:
    """It was appended past the check of the owner: both places are named. An older id is out of order."""
    log = a_log()
    log.store("p", range(3, 6))
    log.store("q", range(20, 23))
    log.store("q", range(15, 16))
    async with Proving.of(log) as proving:
        proving.elect()
        proof = await proving.verdict()
        assert proof.state is ProofState.FAILED
        assert findings(proof, Part.ONCE) == [
            ("3:2", "3 ids from 3 to 5 of 'p' stored again: the first is at 2:0"),
            ("3:4", "id 15 of 'q' after id 22"),
        ]


@pytest.mark.asyncio
async def test_log_that_is_doubled_as_a_whole_is_read_no_further() -> None:
    """What was found until then counts; the memory for findings is bounded. The rest is named. A log that is read in
    small summaries has the same verdict as one that is read in one."""
    log = a_log()
    for number in range(6):
        log.store("p", range(3 * number, 3 * number + 3))
    async with Proving.of(log) as proving:
        coordination, throttle = proving.coordination, Throttle(FAST, 100)
        await coordination.repair.watch.refresh()
        ranges = coordination.proofs.ranges
        known = await ranges.range_of(TOPIC_ID, list(log.entries)[-1], log.next_index)

        async def checked(range_entries: int, low_max: int = 100) -> LogChecked:
            limits = CheckLimits(range_entries=range_entries, low_max=low_max)
            views = coordination.proofs.views
            return await LogCheck(FLIGHTS, known, ranges, views, throttle, lambda *_: None, limits).run()

        whole, small = await checked(1_000), await checked(3)
        assert whole.findings == small.findings
        assert (whole.not_checked, [each.rule for each in whole.findings]) == ([], ["once"] * 4)
        broken_off = await checked(3, low_max=1)
        assert "too many ids are out of order" in broken_off.not_checked[0]


@pytest.mark.asyncio
async def test_entry_that_no_node_has_is_found() -> None:
    """Every member has refused it, so it is lost."""
    async with Proving.of(a_log()) as proving:
        for node in proving.nodes:
            del node.copies[LedgerId(2)][EntryId(1)]
        proving.elect()
        proof = await proving.verdict()
        assert findings(proof, Part.ONCE)[0][0] == "2:1"
        assert [position for position, _ in findings(proof, Part.COPIES)] == ["2:1"]


@pytest.mark.asyncio
async def test_end_that_the_log_does_not_reach_is_found() -> None:
    """The owner counts messages that its ledgers do not have."""
    log = a_log()
    async with Proving.of(log) as proving:
        log.next_index += 1
        proving.says(log)
        proving.elect()
        assert findings(await proving.verdict(), Part.ONCE) == [("", "its next message has index 25, in the log 24")]


@pytest.mark.asyncio
async def test_differences_at_the_owner_are_found() -> None:
    """A producer and a subscription, each with what the owner has and what snapshot and log say."""
    producer = {"producer": "p", "producer_id": 1, "field": "role", "expected": "x", "found": "y"}
    subscription = {"subscription": "s", "producer": "", "field": "state", "expected": "d1", "found": "d2"}
    async with Proving.of(a_log()) as proving:
        acks = proving.verified["subscriptions"] | {"differences_count": 1, "differences": [subscription]}
        proving.verified = verified(state="different", differences_count=1, differences=[producer], subscriptions=acks)
        proving.elect()
        proof = await proving.verdict()
        assert proof.state is ProofState.FAILED
        said = "by snapshot 3 at 1:2 and the log behind it up to"
        assert findings(proof, Part.FOLD) == [("1:4", f"producer 'p': role is y at its owner, but x {said} 1:4")]
        assert findings(proof, Part.ACKS) == [("2:0", f"subscription 's': state is d2 at its owner, but d1 {said} 2:0")]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("changes", "part", "reason"),
    [
        ({"state": "failed", "error": "an entry is away"}, Part.FOLD, "an entry is away"),
        ({"state": "cancelled"}, Part.FOLD, "was cancelled"),
        ({"newest_snapshot_number": 4}, Part.FOLD, "snapshot 4 cannot be read"),
        ({"subscriptions": None}, Part.ACKS, "does not verify them"),
    ],
)
async def test_owner_without_a_verdict_leaves_the_proof_incomplete(changes: object, part: Part, reason: str) -> None:
    """It is named; nothing that was not compared counts as equal."""
    async with Proving.of(a_log()) as proving:
        proving.verified = verified(**changes)  # type: ignore[arg-type]
        proving.elect()
        proof = await proving.verdict()
        assert proof.state is ProofState.INCOMPLETE
        assert reason in proof.part(part).not_checked[0]


@pytest.mark.asyncio
async def test_topic_that_moves_again_and_again_leaves_the_proof_incomplete() -> None:
    """Each owner begins anew, a limited number of times."""
    async with Proving.of(a_log()) as proving:
        proving.moving, proving.verified = True, verified(state="running")
        proving.elect()
        proof = await proving.verdict()
        assert proof.state is ProofState.INCOMPLETE
        assert "has moved 4 times" in proof.part(Part.FOLD).not_checked[0]
        assert proof.part(Part.ACKS).not_checked == proof.part(Part.FOLD).not_checked
        assert proving.begun == 4


@pytest.mark.asyncio
async def test_silent_node_leaves_the_proof_incomplete() -> None:
    """The others have every entry, but what the silent one has is not known."""
    async with Proving.of(a_log()) as proving:
        proving.nodes[0].stopped = True
        proving.elect()
        proof = await proving.verdict()
        assert (proof.state, proof.findings_count) == (ProofState.INCOMPLETE, 0)
        assert proof.part(Part.COPIES).not_checked_count == 3, "one of each ledger"
        assert proof.part(Part.COPIES).not_checked[0].startswith("storage node aaaaaaaa did not answer")
        assert not proof.part(Part.ONCE).not_checked


@pytest.mark.asyncio
async def test_progress_moves_within_a_ledger() -> None:
    """A ledger of a few hundred large entries is read for minutes: its entries are compared some at a time."""
    log = PlantedLog()
    log.open("p")
    for number in range(3 * FIRST_STEP):
        log.store("p", range(number, number + 1))
    async with Proving.of(log) as proving:
        ranges, nodes = proving.coordination.proofs.ranges, proving.coordination.repair.calls
        known = await ranges.range_of(TOPIC_ID, list(log.entries)[-1], log.next_index)
        check = CopiesCheck(nodes, CopyRequests(nodes, bytes_per_s=FAST), ranges.record, Throttle(FAST, 100))
        steps = [step async for step in check.run(known, Position(LedgerId(-1), EntryId(0)))]
        assert [step.entries for step in steps][:2] == [FIRST_STEP, 2 * FIRST_STEP]
        assert sum(step.entries for step in steps) == known.entries


@pytest.mark.asyncio
@pytest.mark.hazard("answer-of-a-former-member")
@pytest.mark.parametrize("replaced", [False, True])
async def test_member_that_has_erased_its_copy_is_asked_for_nothing_else(replaced: bool) -> None:
    """Repair has replaced it meanwhile: then its successor is asked. Otherwise its copy is not checked."""
    log = a_log()
    async with Proving.of(log) as proving:
        coordination, throttle = proving.coordination, Throttle(FAST, 100)
        ranges, nodes = coordination.proofs.ranges, coordination.repair.calls
        known = await ranges.range_of(TOPIC_ID, list(log.entries)[-1], log.next_index)
        former, successor = proving.nodes[0], await proving.node("d")
        successor.copies = dict(former.copies)
        former.erased.add(LedgerId(1))
        await coordination.repair.watch.refresh()
        if replaced:
            members = (successor.incarnation, *(node.incarnation for node in proving.nodes[1:3]))
            await proving.change(1, members=members)
        check = CopiesCheck(nodes, CopyRequests(nodes, bytes_per_s=FAST), ranges.record, throttle)
        steps = [step async for step in check.run(known, Position(LedgerId(-1), EntryId(0)))]
        assert [finding for step in steps for finding in step.findings] == []
        left = [reason for step in steps for reason in step.not_checked]
        assert left == ([] if replaced else ["storage node aaaaaaaa has erased its copy: entries 0 to 3 of ledger 1"])
        assert sum(step.entries for step in steps) == known.entries


@pytest.mark.asyncio
async def test_messages_that_are_trimmed_meanwhile_leave_the_range() -> None:
    """Retention has deleted the first ledger since the proof began: another replica goes on without it."""
    log = a_log()
    async with Proving.of(log) as proving:
        await proving.take_snapshot(folded(log, Position(LedgerId(1), EntryId(3))))
        begun = (await proving.ask()).taken("m-0", 1)
        begun = begun.ranged(from_index=0, until_index=24, end=list(log.entries)[-1], entries=10).done(Part.END)
        await proving.coordination.proofs.store.write(begun, version=0)
        await proving.trim()
        proving.elect()
        proof = await proving.ended()
        assert (proof.state, proof.from_index, proof.until_index) == (ProofState.PROVED, 6, 24)
        assert (proof.began, proof.part(Part.COPIES).done) == (2, 6)


@pytest.mark.asyncio
async def test_trimmed_messages_are_not_in_the_range() -> None:
    """Retention has deleted the first ledger: the verdict says from where it counts."""
    log = a_log()
    async with Proving.of(log) as proving:
        await proving.take_snapshot(folded(log, Position(LedgerId(2), EntryId(1))))
        await proving.trim()
        proving.elect()
        proof = await proving.verdict()
        assert (proof.state, proof.from_index, proof.until_index) == (ProofState.PROVED, 6, 24)


@pytest.mark.asyncio
async def test_empty_topic_is_proved() -> None:
    """Nothing is stored, and nothing is claimed of any message."""
    async with Proving.of(PlantedLog(ledgers=[])) as proving:
        proving.elect()
        proof = await proving.verdict()
        assert (proof.state, proof.from_index, proof.until_index) == (ProofState.PROVED, 0, 0)


@pytest.mark.asyncio
async def test_second_request_joins_the_proof_that_goes_on() -> None:
    """Nobody is elected: it waits, and is cancelled at once."""
    async with Proving.of(a_log()) as proving:
        first = await proving.ask()
        assert await proving.ask() == first
        assert first.state is ProofState.QUEUED
        cancelled = await proving.coordination.proofs.cancel(TOPIC_ID)
        assert cancelled is not None
        assert cancelled.state is ProofState.CANCELLED
        assert (await proving.ended()).part(Part.ONCE).not_checked == ("once: not read",)
        assert await proving.coordination.proofs.cancel(TOPIC_ID) is None


@pytest.mark.asyncio
async def test_proof_that_goes_on_is_cancelled() -> None:
    """What it has found until then stays a verdict: here it has found nothing."""
    async with Proving.of(a_log()) as proving:
        proving.verified = verified(state="running")
        proving.elect()
        await proving.ask()
        await proving.reaches(Part.FOLD)
        await proving.coordination.proofs.cancel(TOPIC_ID)
        proof = await proving.ended()
        assert proof.state is ProofState.CANCELLED
        assert done(proof)["copies"] == (10, 10)
        assert proof.part(Part.FOLD).not_checked == ("fold: not read",)
        assert proving.cancelled == 1


@pytest.mark.asyncio
async def test_another_replica_goes_on_where_the_copies_were() -> None:
    """The first one has lost the election: what it has read of the copies is not read again, and its findings count."""
    async with Proving.of(a_log()) as proving:
        proving.nodes[1].unreadable[LedgerId(2)] = {EntryId(1)}
        proving.verified = verified(state="running")
        names = ["m-1"]
        proving.elect(names)
        await proving.ask()
        await proving.reaches(Part.FOLD)
        proving.nodes[1].unreadable.clear()
        names[0] = "m-2"
        await proving.reaches(Part.FOLD, replica="m-2")
        proving.verified = verified()
        proof = await proving.ended()
        assert (proof.replica, proof.began) == ("m-2", 2)
        assert done(proof) == {"end": (3, 3), "once": (10, 10), "copies": (10, 10), "fold": (2, 2), "acks": (1, 1)}
        assert [position for position, _ in findings(proof, Part.COPIES)] == ["2:1"]


@pytest.mark.asyncio
async def test_proof_that_another_replica_has_taken_is_left_to_it() -> None:
    """Two replicas that believe to be elected do not mix their work: the record says whose it is."""
    async with Proving.of(a_log()) as proving:
        proving.verified = verified(state="running")
        proving.elect()
        await proving.ask()
        await proving.reaches(Part.FOLD)
        store = proving.coordination.proofs.store
        going = await store.proof(TOPIC_ID)
        assert going is not None
        await store.write(replace(going.value, replica="m-9"), version=going.version)
        await proving.reaches(Part.FOLD)
        proving.verified = verified()
        assert (await proving.ended()).began == 2


@pytest.mark.asyncio
@pytest.mark.parametrize("goes_on", [False, True])
async def test_topic_that_is_deleted_leaves_nothing(goes_on: bool) -> None:
    """Its verdict goes with it, and a proof that goes on writes none."""
    async with Proving.of(a_log()) as proving:
        proving.elect()
        await proving.verdict()
        if goes_on:
            proving.verified = verified(state="running")
            await proving.ask()
            await proving.reaches(Part.FOLD)
        proving.owner.states = []
        await proving.change(3, state=LedgerState.CLOSED, end=EntryId(1))
        await proving.coordination.deletions.delete(FLIGHTS)
        store = proving.coordination.proofs.store
        assert await store.proof(TOPIC_ID) is None
        assert await store.verdict(TOPIC_ID) is None


@pytest.mark.asyncio
async def test_verdict_of_a_topic_that_an_older_replica_has_deleted_is_swept() -> None:
    """It does not know verdicts. The elected replica looks for them when it is elected."""
    async with Proving.of(a_log()) as proving:
        store = proving.coordination.proofs.store
        gone = replace(await proving.ask(), topic_id=TopicId("0e" * 16))
        await store.ask(gone)
        await store.conclude(gone.concluded(1), version=0)
        proving.elect()
        await proving.ended()
        assert await store.verdict(gone.topic_id) is None
