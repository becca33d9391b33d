"""The proof of a topic compares the whole log with the producers that its owner has and with its newest snapshot, and
reads the bodies: it finds each planted difference, however many readings the producers need."""

from collections.abc import Sequence

import pytest

from oncelog.core.formats.entry import EntryKind, SequenceMode
from oncelog.core.formats.head import LedgerHead, encode_head
from oncelog.core.formats.producers_aged import ProducersAged, encode_aged
from oncelog.core.ids import EntryId, Generation, Incarnation, LedgerId, Position, ProducerId, SequenceId
from oncelog.core.publishing.dedup_state import DedupState
from oncelog.core.publishing.recent_batches import RecentBatches
from oncelog.metadata.proof.log_check import CheckLimits, LogCheck, LogChecked, Progressed
from oncelog.metadata.proof.throttle import Throttle
from oncelog.rpc.codecs.owner_codec import TOPIC_STATES
from oncelog.storage_client.losses import LOST_MAX
from oncelog.verify.producer_marks import ReportedProducer
from oncelog.verify.proof import Part, ProofState
from oncelog.verify.range_summary import FINDINGS_KEPT, Finding
from oncelog.wire import owner_pb2
from tests.contract.proof.planted_log import TOPIC_ID, PlantedLog
from tests.contract.proof.proving import FAST, FLIGHTS, Proving, a_log, findings, folded

pytestmark = pytest.mark.asyncio

P, Q = ProducerId(1), ProducerId(2)


def at(ledger: int, entry: int) -> Position:
    return Position(LedgerId(ledger), EntryId(entry))


def of_snapshots(*messages: str) -> list[tuple[str, str]]:
    return [("", message) for message in messages]


async def once(proving: Proving) -> list[tuple[str, str]]:
    proving.elect()
    return findings(await proving.verdict(), Part.ONCE)


async def checked(
    proving: Proving, log: PlantedLog, progressed: Progressed = lambda *_: None, **limits: int
) -> LogChecked:
    """What the part finds within other limits."""
    coordination = proving.coordination
    await coordination.repair.watch.refresh()
    ranges = coordination.proofs.ranges
    known = await ranges.range_of(TOPIC_ID, list(log.entries)[-1], log.next_index)
    check = LogCheck(
        FLIGHTS, known, ranges, coordination.proofs.views, Throttle(FAST, 100), progressed, CheckLimits(**limits)
    )
    return await check.run()


# --- the producers of the owner ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("producer_id", "reported", "message"),
    [
        (P, {"mark": 10}, "'p' (1) has the mark 10 in the report, 11 in the log"),
        (Q, {"mark": 12}, "'q' (2) has the mark 12 in the report, 11 in the log"),
        (Q, {"generation": 2}, "'q' (2) has the generation 2 in the report, 1 in the log"),
        (P, {"name": "x"}, "'x' (1) is 'p' in the log"),
        (P, {"mode": SequenceMode.CONTIGUOUS}, "'p' (1) is contiguous in the report, monotonic in the log"),
        (P, None, "'p' (1) has the mark 11 in the log and is not reported"),
        (ProducerId(9), {}, "'p' (9) has the mark 11 in the report and is not in the log"),
    ],
)
async def test_producer_that_the_owner_has_otherwise_than_the_log_is_found(
    producer_id: ProducerId, reported: dict[str, object] | None, message: str
) -> None:
    """Even where its snapshot is wrong in the same way, so that snapshot and replay give what it has."""
    async with Proving.of(a_log()) as proving:
        if reported is None:
            del proving.producers[producer_id]
        else:
            known = proving.producers.get(producer_id, proving.producers[P])
            proving.producers[producer_id] = known._replace(**reported)  # type: ignore[arg-type]
        assert await once(proving) == [("", message)]


async def test_snapshot_that_is_wrong_in_the_same_way_as_its_owner_is_found() -> None:
    """The owner has forgotten the last batch of a producer, and has taken a snapshot since: its own verification finds
    them equal. The log knows better than both."""
    log = a_log()
    async with Proving.of(log) as proving:
        state = folded(log)
        forgotten = state.producers[Q]
        forgotten.persisted = SequenceId(8)
        forgotten.recent_batches = RecentBatches(list(forgotten.recent_batches)[:-1])
        state.producers.used(forgotten)
        await proving.take_snapshot(state)
        proving.producers[Q] = proving.producers[Q]._replace(mark=SequenceId(8))
        text = "'q' (2) has the mark 8 in the report, 11 in the log"
        proving.elect()
        proof = await proving.verdict()
        assert findings(proof, Part.ONCE) == [("", text), ("", text)]
        assert [each.rule for each in proof.part(Part.ONCE).findings] == ["live map", "snapshot"]
        assert proof.part(Part.FOLD).findings_count == 0


async def test_owner_that_lists_only_some_producers_leaves_the_proof_incomplete() -> None:
    """It knows no pages, and its list is too long for an answer."""
    async with Proving.of(a_log()) as proving:
        del proving.producers[Q]
        proving.page = 0
        proving.elect()
        proof = await proving.verdict()
        assert (proof.state, proof.findings_count) == (ProofState.INCOMPLETE, 0)
        assert "the topic owner lists 1 of its producers" in proof.part(Part.ONCE).not_checked[0]


async def test_log_is_read_without_an_owner() -> None:
    """It has gone since the range was fixed: what it has is not compared, and that is named."""
    log = a_log()
    log.store("p", range(3))
    async with Proving.of(log) as proving:
        proving.owner.states = []
        proof = await checked(proving, log)
        assert [each.rule for each in proof.findings] == ["once"]
        assert "the producers of the owner, and its snapshots were not compared" in proof.not_checked[0]


# --- snapshots --------------------------------------------------------------------------------------------------------


async def test_sound_snapshot_is_proved() -> None:
    """At the end of the log, within a ledger, and in a closed ledger of the cursor."""
    for end, closed in ((None, False), (at(2, 1), True)):
        log = a_log()
        async with Proving.of(log) as proving:
            await proving.take_snapshot(folded(log, end), number=3, closed=closed)
            proving.elect()
            proof = await proving.verdict()
            assert (proof.state, proof.findings_count) == (ProofState.PROVED, 0), proof


@pytest.mark.parametrize(
    ("changes", "place", "message"),
    [
        ({"position": at(1, 1)}, "1:1", "and the entry has no messages"),
        ({"position": at(1, 3)}, "1:3", "and the entry is of producer 2"),
        ({"offset": 1}, "2:0", "and the entry has ids 3 to 5, 3 in all"),
        ({"last": 6, "count": 4}, "2:0", "and the entry has ids 3 to 5, 3 in all"),
        ({"position": at(1, 7)}, "1:7", "the log has no such entry"),
    ],
)
async def test_batch_that_a_snapshot_remembers_wrongly_is_found(
    changes: dict[str, object], place: str, message: str
) -> None:
    """A wrong position gives a wrong answer to a repeated id, or reports it as never stored."""
    log = a_log()
    async with Proving.of(log) as proving:
        state = folded(log, at(2, 1))
        producer = state.producers[P]
        *rest, last = producer.recent_batches
        wrong = last._replace(**changes)  # type: ignore[arg-type]
        producer.recent_batches = RecentBatches([wrong] if wrong.position < rest[-1].position else [*rest, wrong])
        state.producers.used(producer)
        await proving.take_snapshot(state)
        [(position, found)] = await once(proving)
        assert position == place
        assert message in found


async def test_snapshot_that_is_lost_is_found() -> None:
    """The owner took it, and no node has it; or only an older one."""
    log = a_log()
    async with Proving.of(log) as proving:
        proving.snapshot = {"number": 4}
        proving.elect()
        found = of_snapshots("the topic owner has taken snapshot 4, but none can be read")
        assert findings(await proving.verdict(), Part.ONCE) == found
        await proving.take_snapshot(folded(log), number=3)
        proving.snapshot = {"number": 4}
        found = of_snapshots("the topic owner has taken snapshot 4, but the newest that can be read is 3")
        assert findings(await proving.verdict(), Part.ONCE) == found


async def test_ledger_of_snapshots_that_cannot_be_read_is_found() -> None:
    """It is closed, so its record says that it has entries: they are lost."""
    log = a_log()
    async with Proving.of(log) as proving:
        await proving.take_snapshot(folded(log), closed=True)
        for node in proving.nodes:
            node.copies[LedgerId(100)].clear()
        first, second = await once(proving)
        assert "ledger 100 of the snapshots cannot be read" in first[1]
        assert "has taken snapshot 1, but none can be read" in second[1]


async def test_log_that_needs_a_snapshot_and_has_none_is_found() -> None:
    """It is trimmed, or much longer than an owner leaves without a snapshot; a short log needs none."""
    log = a_log()
    entries = len(log.entries)
    async with Proving.of(log) as proving:
        proving.elect()
        for entries_max, interval_ms, needed in (
            (entries - 1, 1_000, True),
            (entries - 1, 10**9, False),
            (entries, 1_000, False),
            (entries // 11, 10**9, False),
            (1, 10**9, False),
        ):
            proving.snapshot = {"number": 0, "entries_max": entries_max, "interval_ms": interval_ms}
            found = findings(await proving.verdict(), Part.ONCE)
            assert (["snapshots are lost" in message for _, message in found] == [True]) is needed, entries_max
        await proving.trim()
        [(_, message)] = findings(await proving.verdict(), Part.ONCE)
        assert "no topic owner can take it over" in message


# --- the log ----------------------------------------------------------------------------------------------------------


async def test_batch_with_a_wrong_checksum_is_found() -> None:
    """The entry around it has the right checksum: the batch was damaged before it was stored."""
    log = a_log()
    place = log.store("p", [12], bad_batch=True)
    async with Proving.of(log) as proving:
        [(position, message)] = await once(proving)
        assert position == str(place)
        assert "the batch's checksum does not match" in message


async def test_damage_of_every_kind_is_found_with_its_place() -> None:
    """A batch that is stored again in part, a hole in the numbers, an entry that no node can read, and a producer
    whose mark at the owner is too low; not what may follow from the entry that was not read."""
    log = PlantedLog()
    log.open("a")
    log.store("a", range(10))
    log.open("b")
    log.store("b", [100, 200])
    log.roll(epoch=2)
    log.store("a", range(10, 20))
    log.store("b", [200, 300])
    log.store("a", [20])
    log.roll(epoch=3)
    log.next_index += 2
    log.store("a", [30])
    log.store("b", [400])
    log.store("b", [350])
    log.store("a", [40])
    async with Proving.of(log) as proving:
        for node in proving.nodes:
            node.unreadable[LedgerId(3)] = {EntryId(1)}
        proving.producers[P] = proving.producers[P]._replace(mark=SequenceId(39))
        proving.elect()
        proof = await proving.verdict()
        found = proof.part(Part.ONCE).findings
        assert [(each.rule, each.position) for each in found] == [
            ("once", "2:1"), ("base_index", "3:0"), ("chain", "3:0"), ("unreadable", "3:1"), ("live map", ""),
        ]  # fmt: skip
        assert found[0].message == "id 200 of 'b' stored again: it is at 1:3"


async def test_ledger_that_is_lost_is_found_in_few_lines() -> None:
    """Not entry by entry, and the rest is still read."""
    log = PlantedLog()
    log.open("a")
    for number in range(2 * LOST_MAX):
        log.store("a", [number])
    log.roll()
    log.store("a", [10**6])
    async with Proving.of(log) as proving:
        for node in proving.nodes:
            node.copies[LedgerId(1)].clear()
        proof = await checked(proving, log)
        assert [each.rule for each in proof.findings].count("unreadable") == LOST_MAX + 1


def contiguous(*batches: Sequence[int]) -> PlantedLog:
    log = PlantedLog()
    log.open("a", mode=SequenceMode.CONTIGUOUS)
    for ids in batches:
        log.store("a", ids)
    return log


@pytest.mark.parametrize("page", [1, 1_000])
async def test_gap_of_a_contiguous_producer_is_found(page: int) -> None:
    """Also where its opening was trimmed: its owner says that it is contiguous, be it on a later page."""
    log = contiguous(range(5), [5, 6, 9], range(10, 12))
    log.roll()
    log.store("a", range(14, 16))
    log.open("b", mode=SequenceMode.MONOTONIC)
    log.store("b", [1, 5])
    log.store("a", [19])
    gaps = [
        ("1:2", "ids 7 to 8 are missing of 'a', which is contiguous"),
        ("2:0", "ids 12 to 13 are missing of 'a', which is contiguous"),
        ("2:3", "ids 16 to 18 are missing of 'a', which is contiguous"),
    ]
    async with Proving.of(log) as proving:
        proving.page = page
        proving.elect()
        await proving.take_snapshot(folded(log, at(1, 3)))
        assert findings(await proving.verdict(), Part.ONCE) == gaps
        await proving.trim()
        [(position, message)] = findings(await proving.verdict(), Part.ONCE)
        assert (position, "ids 16 to 18 are missing" in message) == ("2:3", True)


def with_expired() -> PlantedLog:
    """`a` has expired, and its name is that of another producer now."""
    log = contiguous(range(5))
    expired = log.producers["a"].producer_id
    log.append(EntryKind.PRODUCERS_AGED, encode_aged(ProducersAged(1000, (), (expired,))))
    log.producers["expired"] = log.producers.pop("a")
    log.open("b")
    log.open("a")
    log.store("a", range(3))
    return log


async def test_expired_producer_is_no_finding_and_its_batch_is_one() -> None:
    """Its name may be that of another producer, and the owner does not have it any more."""
    log = with_expired()
    expired = log.producers.pop("expired")
    async with Proving.of(log) as proving:
        for entries in (2, 100):
            assert (await checked(proving, log, range_entries=entries)).findings == []
    log.producers["expired"] = expired
    place = log.store("expired", [5])
    del log.producers["expired"]
    async with Proving.of(log) as proving:
        for entries in (2, 100):
            found = (await checked(proving, log, range_entries=entries)).findings
            assert place in [each.position for each in found if each.rule in ("expired", "grants")]


async def test_head_inside_a_ledger_is_found() -> None:
    """Only the first entry of a ledger says whose it is."""
    head = encode_head(LedgerHead("public/default/t", (Incarnation("a" * 32),), 1, 1, Incarnation("0" * 32)))
    log = PlantedLog()
    log.append(EntryKind.HEAD_LOG, head)
    log.open("a")
    log.store("a", range(3))
    async with Proving.of(log) as proving:
        assert (await checked(proving, log)).findings == []
    place = log.append(EntryKind.HEAD_LOG, head)
    log.store("a", [5])
    async with Proving.of(log) as proving:
        assert [(each.rule, each.position) for each in (await checked(proving, log)).findings] == [("head", place)]


# --- many producers ---------------------------------------------------------------------------------------------------

COUNT = 40


def with_many() -> PlantedLog:
    """Some damage of each kind, in several producers; one has expired."""
    log = PlantedLog()
    for number in range(COUNT):
        log.open(f"p{number}")
        log.store(f"p{number}", range(3))
        if number % 9 == 8:
            log.roll()
    for number in range(0, COUNT, 7):
        log.store(f"p{number}", range(2, 5))
        log.store(f"p{number}", [20, 30])
        log.store(f"p{number}", [25])
    log.open("p3", generation=5)
    log.open("p30", persisted=9)
    log.append(EntryKind.PRODUCERS_AGED, encode_aged(ProducersAged(1000, (), (log.producers["p8"].producer_id,))))
    del log.producers["p8"]
    return log


def by_place(found: Sequence[Finding]) -> list[Finding]:
    return sorted(found, key=lambda each: (each.position or at(99, 0), each.message))


@pytest.mark.parametrize("page", [3, 7, 1_000])
@pytest.mark.parametrize("kept_max", [4, 11, 30])
async def test_many_producers_are_proved_some_at_a_time(page: int, kept_max: int) -> None:
    """Each reading keeps sums of a few producers only. All readings together find what one finds that keeps all."""
    log = with_many()
    async with Proving.of(log) as proving:
        for producer_id in (P, ProducerId(17), ProducerId(35)):
            proving.producers[producer_id] = proving.producers[producer_id]._replace(mark=SequenceId(1_000))
        del proving.producers[ProducerId(26)]
        proving.producers[ProducerId(99)] = ReportedProducer(
            "unknown", SequenceMode.MONOTONIC, Generation(1), SequenceId(5)
        )
        await proving.take_snapshot(wrong_at(folded_until_damage(log), ProducerId(12), ProducerId(34)))
        whole = await checked(proving, log)
        assert {"once", "order", "generations", "grant's mark", "live map", "snapshot"} <= {
            each.rule for each in whole.findings
        }
        proving.page = page
        parts = await checked(proving, log, kept_max=kept_max, range_entries=5)
        assert by_place(parts.findings) == by_place(whole.findings)
        assert (parts.findings_count, parts.not_checked) == (whole.findings_count, [])


async def test_producers_that_have_expired_are_bounded_too() -> None:
    """The owner does not list them any more; the log is read again for those that the first reading has no room for."""
    log = PlantedLog()
    for number in range(COUNT):
        log.open(f"p{number}")
    aged = ProducersAged(1000, (), tuple(one.producer_id for one in log.producers.values()))
    log.append(EntryKind.PRODUCERS_AGED, encode_aged(aged))
    log.producers.clear()
    async with Proving.of(log) as proving:
        for kept_max, again in ((COUNT, False), (COUNT // 2, True)):
            read: list[tuple[int, int]] = []

            def progressed(done: int, of: int, read: list[tuple[int, int]] = read) -> None:
                read.append((done, of))

            found = await checked(proving, log, progressed, kept_max=kept_max, range_entries=COUNT // 4)
            assert (found.findings, found.not_checked) == ([], [])
            assert (len(read) > len(log.entries)) is again


async def test_findings_of_several_readings_are_counted_once() -> None:
    """Also those that are too many for a list."""
    log = a_log()
    for number in range(2 * FINDINGS_KEPT):
        log.store("p", [20 + number], generation=9)
    async with Proving.of(log) as proving:
        whole, parts = await checked(proving, log), await checked(proving, log, kept_max=1)
        assert whole.findings_count == parts.findings_count == 2 * FINDINGS_KEPT
        assert len(whole.findings) == FINDINGS_KEPT


def folded_until_damage(log: PlantedLog) -> DedupState:
    ends = [place for number, place in enumerate(log.entries) if number < 2 * COUNT]
    return folded(log, ends[-1])


def wrong_at(state: DedupState, *producer_ids: ProducerId) -> DedupState:
    for producer_id in producer_ids:
        producer = state.producers[producer_id]
        producer.persisted = SequenceId(7)
        [batch] = producer.recent_batches
        producer.recent_batches = RecentBatches([batch._replace(offset=1)])
        state.producers.used(producer)
    return state


async def test_log_that_grows_while_pages_are_compared_is_read_on() -> None:
    """Each page is as of its own position."""
    log = a_log()
    async with Proving.of(log) as proving:
        proving.page = 1
        asked, answer = 0, proving._states

        async def growing(request: owner_pb2.TopicStatesRequest) -> owner_pb2.TopicStatesAnswer:
            nonlocal asked
            asked += 1
            answered = await answer(request)
            if asked == 3:  # the first page was given as of the former end
                place = log.store("q", range(12, 14))
                for node in proving.nodes:
                    node.copies[place.ledger_id][place.entry_id] = log.entries[place]
                proving.says(log)
            return answered

        proving.owner.server.unary(TOPIC_STATES, growing)
        found = await checked(proving, log)
        assert (found.findings, found.not_checked) == ([], [])
        assert asked == 4
