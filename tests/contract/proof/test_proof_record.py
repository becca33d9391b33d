"""The parts and the verdict of a proof, and its record."""

from dataclasses import replace

import pytest

from oncelog.core.ids import EntryId, LedgerId, Position, TopicId
from oncelog.metadata_store.records.cluster_store import ClusterStore
from oncelog.metadata_store.records.proof_store import ProofStore
from oncelog.metadata_store.session import paths
from oncelog.verify.proof import FORMER_MAX, KEPT_MAX, Part, PartState, ProofState, TopicProof
from oncelog.verify.range_summary import Finding
from tests.contract.stores.memory_store import MemorySession, MemoryTree

PLACE = Position(LedgerId(4), EntryId(2))
FINDING = Finding("copies", PLACE, "its copies differ")
ASKED = TopicProof(TopicId("0f" * 16), "public/default/flights", "ann", 1, 1 << 20, 20)
#: What ZooKeeper takes as one record.
RECORD_BYTES_MAX = 1 << 20


def done(*parts: Part) -> TopicProof:
    proof = ASKED.taken("m-1", 2).ranged(from_index=0, until_index=9, end=PLACE, entries=9)
    for part in parts:
        proof = proof.done(part)
    return proof


def test_proved_means_that_every_part_was_read_and_nothing_was_left_out() -> None:
    """Each part that is missing, or has a gap, makes the verdict incomplete."""
    whole = done(*Part)
    assert whole.next_part is None
    assert whole.concluded(5).state is ProofState.PROVED
    for part in Part:
        others = done(*(each for each in Part if each is not part))
        assert others.next_part is part
        ended = others.concluded(5)
        assert (ended.state, ended.part(part).not_checked) == (ProofState.INCOMPLETE, (f"{part.value}: not read",))
        assert whole.left_out(part, ["a node is away"]).concluded(5).state is ProofState.INCOMPLETE
        assert whole.found(part, [FINDING]).left_out(part, ["x"]).concluded(5).state is ProofState.FAILED


def test_cancelled_proof_with_a_finding_is_failed() -> None:
    """A damaged message is damaged, whoever stops looking."""
    assert done(Part.END).cancelled(5).state is ProofState.CANCELLED
    assert done(Part.END).found(Part.ONCE, [FINDING]).cancelled(5).state is ProofState.FAILED


def test_proof_that_is_taken_again_keeps_what_is_done() -> None:
    """Copies go on at their place with what was found; another part that was not done begins again."""
    proof = done(Part.END).begun(Part.ONCE).progressed(Part.ONCE, 5).found(Part.ONCE, [FINDING])
    again = proof.taken("m-2", 9)
    assert (again.part(Part.ONCE).done, again.part(Part.ONCE).of, again.findings_count) == (0, 9, 0)
    assert (again.part(Part.END).state, again.next_part) == (PartState.DONE, Part.ONCE)
    assert (again.began, again.began_ms, again.replica) == (2, 2, "m-2")
    proof = done(Part.END, Part.ONCE).found(Part.COPIES, [FINDING]).copies_compared(5, 1, PLACE)
    again = proof.taken("m-2", 9)
    assert (again.part(Part.COPIES).done, again.part(Part.COPIES).thin, again.findings_count) == (5, 1, 1)
    assert (again.resume_ledger, again.resume_entry) == (4, 2)


def test_later_verdict_remembers_an_earlier_failure() -> None:
    """However many follow it: of more than 20, those that found nothing go first."""
    failed = done(*Part).found(Part.ONCE, [FINDING]).left_out(Part.FOLD, ["x"]).concluded(5)
    verdict = failed
    for number in range(3 * FORMER_MAX):
        verdict = done(*Part).concluded(10 + number).after(verdict)
    assert len(verdict.former) == FORMER_MAX
    assert verdict.former[-1] == failed.remembered()
    assert (failed.remembered().finding, failed.remembered().not_checked_count) == ("4:2 its copies differ", 1)
    assert [each.ended_ms for each in verdict.former[:2]] == [68, 67]
    for number in range(2 * FORMER_MAX):
        verdict = failed.after(replace(verdict, ended_ms=100 + number))
    assert {each.state for each in verdict.former} == {ProofState.FAILED}
    assert len(verdict.former) == FORMER_MAX


@pytest.mark.asyncio
async def test_verdict_is_kept_with_those_before_it() -> None:
    """One without a former verdict has the bytes that it always had; a damaged one is replaced."""
    session = MemorySession(MemoryTree())
    await ClusterStore(session).establish()
    store, path = ProofStore(session), paths.verdict(ASKED.topic_id)

    async def conclude(verdict: TopicProof) -> tuple[ProofState, ...]:
        await store.ask(ASKED)
        going = await store.proof(ASKED.topic_id)
        assert going is not None
        await store.conclude(verdict, version=going.version)
        stored = await store.verdict(ASKED.topic_id)
        assert stored is not None
        return tuple(each.state for each in stored.former)

    assert await conclude(done(*Part).found(Part.ONCE, [FINDING]).concluded(5)) == ()
    node = await session.read(path)
    assert node is not None
    assert b"former" not in node.data
    assert await conclude(done(*Part).concluded(6)) == (ProofState.FAILED,)
    assert await conclude(done(Part.END).cancelled(7)) == (ProofState.PROVED, ProofState.FAILED)
    node = await session.read(path)
    assert node is not None
    await session.write(path, b"{damaged", version=node.version)
    assert await conclude(done(*Part).concluded(8)) == ()


def test_trimmed_messages_leave_the_range() -> None:
    """The range never grows again."""
    assert done().trimmed(4).trimmed(2).from_index == 4


@pytest.mark.asyncio
async def test_record_is_bounded_and_comes_back() -> None:
    """However many findings there are, and however long they are; all are counted."""
    session = MemorySession(MemoryTree())
    await ClusterStore(session).establish()
    store, proof = ProofStore(session), done(*Part)
    for part in Part:
        proof = proof.found(part, [Finding("once", PLACE, "é" * 10_000)] * 1_000, 1_000)
        proof = proof.left_out(part, [f"{number} {'x' * 10_000}" for number in range(1_000)])
    assert proof.findings_count == 5_000
    assert len(proof.part(Part.ONCE).findings) == len(proof.part(Part.ONCE).not_checked) == KEPT_MAX
    assert proof.part(Part.ONCE).not_checked_count == 1_000
    await store.ask(replace(proof, cancel=True))
    going = await store.proof(proof.topic_id)
    assert going is not None
    assert going.value == replace(proof, cancel=True)
    node = await session.read(paths.proof(proof.topic_id))
    assert node is not None
    assert len(node.data) < RECORD_BYTES_MAX / 2
    ended = proof.concluded(7)
    await store.conclude(ended, version=going.version)
    assert await store.verdict(proof.topic_id) == ended
    assert await store.proof(proof.topic_id) is None
