"""Planted bugs of what a restore reads, and of how it restores: each takes one rule away."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

from oncelog.core.chain.managed_ledger import ManagedLedger
from oncelog.core.chain.replay import ChainFold, TakeoverFailed
from oncelog.core.era import Era
from oncelog.core.formats.head import LedgerHead
from oncelog.core.formats.topic_record import LedgerLink
from oncelog.core.ids import BEFORE_ALL, EntryId, Incarnation, LedgerId, Position, TopicId
from oncelog.core.ledger.metadata import LedgerMetadata
from oncelog.core.ledger.writer import LedgerWriter
from oncelog.core.node.era import EraState, StoredEra
from oncelog.core.node.node_ledger import JournalRecord
from oncelog.core.rebuild.chain_list import ChainList, _ChainWalk
from oncelog.core.rebuild.evidence import Evidence
from oncelog.core.rebuild.restore_events import Collected, ErasRaised, NodeSeen, RestoreEffect
from oncelog.core.rebuild.restore_plan import Restore
from oncelog.core.rebuild.result import NotedRecords, Rebuilt
from oncelog.core.rebuild.sources import CopiedEra, Inventory
from oncelog.core.records.id_claim import decode_counter, encode_counter
from oncelog.core.topic.folds import LogFold
from oncelog.core.topic.serving import Serving
from oncelog.metadata.restore import new_tree as trees
from oncelog.metadata.restore.noted_records import NewestRecords
from tests.simulation.clients.reader_client import ReaderClient
from tests.simulation.faults import deletions
from tests.simulation.servers.metadata import restorer as restoring
from tests.simulation.servers.metadata.metadata_server import MetadataServer
from tests.simulation.servers.metadata.restorer import Restorer
from tests.simulation.servers.nodes import inventories
from tests.simulation.servers.nodes.kept_copies import KeptCopies
from tests.simulation.servers.nodes.storage_server import Reply, StorageServer
from tests.simulation.servers.owners.member_requests import MemberRequests

_cannot_begin = LogFold.cannot_begin
_begin, _linked = ManagedLedger._begin, ManagedLedger.linked
_survey, _records = Restorer._survey, restoring._records
_unseen = Evidence.unseen
_add = KeptCopies.add
_walk, _result, _repaired = _ChainWalk._walk, _ChainWalk.result, _ChainWalk._repaired
_append, _noted = StorageServer.append, NewestRecords.noted
_raised, _collected_by, _too_few, _stored = Restore._raised, Restore._collected, Restore._too_few, StoredEra.raised

#: {a topic that is served: where its log's fold stood at first}
_first: WeakKeyDictionary[Serving, Position] = WeakKeyDictionary()
#: {a managed ledger: the last entry that it has appended to its former ledger}
_appended: WeakKeyDictionary[ManagedLedger, Position] = WeakKeyDictionary()


def _behind_a_ledger(fold: LogFold, first: LedgerLink | None) -> TakeoverFailed | None:
    """A snapshot behind everything that was trimmed is refused, unless a ledger follows."""
    if first is None and fold.position != BEFORE_ALL:
        return ChainFold.cannot_begin(fold, first)
    return _cannot_begin(fold, first)


def _as_of_the_takeover(serving: Serving, metadata: LedgerMetadata) -> LedgerHead | None:
    """The position of the fold is noted once, when the topic is taken over."""
    record = serving._ownership.record
    former = _first.setdefault(serving, serving.log.table.state.position)
    return serving._ownership.head(metadata, record.deleted_below, former)


def _all_records(server: StorageServer) -> list[JournalRecord]:
    """A restore believes what a node has erased before it learned of its era."""
    return server.disk.records[: server.disk.synced]


def _at_once(_requests: MemberRequests, done: Callable[[], None]) -> None:
    """A topic record that is missing was deleted, whatever era the store is of."""
    done()


def _said_at_once(_replica: MetadataServer, _topic_id: TopicId, proved: Callable[[], None], _: object) -> None:
    """A look-up says that a topic does not exist, whatever era the store is of."""
    proved()


def _all_listed(_walk: _ChainWalk, ids: list[LedgerId]) -> list[LedgerId]:
    """What the copy of the records lists is asked for, also a snapshot that was never acknowledged."""
    return ids


def _once(ledgers: ManagedLedger, writer: LedgerWriter, base_index: int) -> None:
    """A head is written to the first ledger of an owner only."""
    if ledgers not in _appended:
        _begin(ledgers, writer, base_index)
    _appended[ledgers] = Position(writer.ledger_id, writer.next_entry)


def _appended_counts(serving: Serving, metadata: LedgerMetadata) -> LedgerHead | None:
    """What was appended to the former ledger belongs to it, although its write failed."""
    ledgers, state = serving.log.ledgers, serving.log.table.state.position
    former = max(state, _appended.get(ledgers, state))
    return serving._ownership.head(metadata, serving._ownership.record.deleted_below, former)


def _remember_the_end(ledgers: ManagedLedger) -> None:
    writer = ledgers.writer
    if writer is not None and writer.next_entry:
        _appended[ledgers] = Position(writer.ledger_id, EntryId(writer.next_entry - 1))
    _linked(ledgers)


def _only_of_the_cluster(kept: KeptCopies, *arguments: Any, claim: int | None = None) -> None:
    """A restore serves although no storage node has a copy of its records."""
    if claim is None:
        _add(kept, *arguments)


# --- the restore ------------------------------------------------------------------------------------------------------

Inventories = dict[Incarnation, Inventory]
#: {a restorer: the inventories that it has read before it raised the era}
_early: WeakKeyDictionary[Restorer, Inventories] = WeakKeyDictionary()


def _raise_one(restorer: Restorer, nodes: tuple[Incarnation, ...], era: Era) -> None:
    """One node stores the era, and that is enough."""

    def ask(server: StorageServer, reply: Callable[[Reply], None]) -> None:
        server.raise_era(era, reply)

    def raised(_: dict[Incarnation, Reply]) -> None:
        restorer._handle(ErasRaised(dict.fromkeys(nodes, era)))

    restorer._gather(restorer._servers(nodes[:1]), "raise the era", ask, raised)


def _ask(restorer: Restorer, nodes: tuple[Incarnation, ...], done: Callable[[Inventories], None]) -> None:
    """Inventories, whatever era the nodes are in."""

    def ask(server: StorageServer, reply: Callable[[Inventory], None]) -> None:
        reply(replace(restorer._inventory_and_notes(server), era=restorer.plan.era))

    restorer._gather(restorer._servers(nodes), "inventory", ask, done)


def _collected(restorer: Restorer, inventories: Inventories) -> None:
    restorer._inventories = inventories
    seen = {node: NodeSeen(each.cluster_id, each.era, each.limbo_below > 0) for node, each in inventories.items()}
    restorer._handle(Collected(seen, restorer._noted_nodes()))


def _collect_of_any_era(restorer: Restorer, nodes: tuple[Incarnation, ...]) -> None:
    _ask(restorer, nodes, lambda inventories: _collected(restorer, inventories))


def _inventory_first(restorer: Restorer) -> None:
    """It is read at the first survey, before any node has the era."""

    def asked(inventories: Inventories) -> None:
        _early.setdefault(restorer, inventories)
        _survey(restorer)

    _ask(restorer, tuple(server.incarnation for server in restorer.parts.nodes.values()), asked)


def _collect_what_was_read(restorer: Restorer, nodes: tuple[Incarnation, ...]) -> None:

    def asked(inventories: Inventories) -> None:
        early = {node: _early[restorer].get(node, each) for node, each in inventories.items()}
        _collected(restorer, {node: replace(each, era=restorer.plan.era) for node, each in early.items()})

    _ask(restorer, nodes, asked)


def _raise_any_restore(restore: Restore, event: ErasRaised) -> list[RestoreEffect]:
    """A node counts that has stored another restore of this era."""
    era = restore.era
    eras = {
        node: era if stored is not None and stored.number == era.number else stored
        for node, stored in event.eras.items()
    }
    return _raised(restore, ErasRaised(eras))


def _collect_of_any_restore(restore: Restore, event: Collected) -> list[RestoreEffect]:
    era = restore.era
    nodes = {
        node: seen._replace(era=era) if seen.era.number == era.number else seen for node, seen in event.nodes.items()
    }
    return _collected_by(restore, replace(event, nodes=nodes))


def _half_is_enough(restore: Restore, sound: Mapping[Incarnation, object], *, quorum_known: bool = False) -> str | None:
    """Only the ack quorum bounds how many are missing, and half of the nodes are enough."""
    refusal, counted = _too_few(restore, sound, quorum_known=quorum_known), restore._counted()
    missing = sum(1 for node in counted if node not in sound)
    return None if missing <= restore._missing_max and 2 * missing <= len(counted) else refusal


def _by_number(stored: StoredEra, era: Era, *, committed: bool) -> StoredEra:
    """The restore id is no part of the ballot: a node takes each restore of an era."""
    if era.number == stored.era.number and not committed:
        return StoredEra(era, EraState.CLAIMED)
    return _stored(stored, era, committed=committed)


def _counters_of_the_lost_store(rebuilt: Rebuilt, tree: dict[str, bytes]) -> dict[str, bytes]:
    """Producer ids begin again."""
    records = _records(rebuilt, tree)
    records["ids/producer"] = encode_counter(replace(decode_counter(records["ids/producer"]), next=1))
    return records


def _by_ids(_: _ChainWalk, ids: list[LedgerId]) -> list[LedgerId]:
    """Whatever nodes have is listed, by id."""
    return ids


def _without_ends(walk: _ChainWalk, ids: list[LedgerId]) -> list[LedgerId]:
    """Each ledger ends where its copies end."""
    order = _walk(walk, ids)
    walk._ends.clear()
    return order


def _without_findings(walk: _ChainWalk) -> ChainList:
    """Nobody looks at what was found."""
    chain = _result(walk)
    chain.findings.clear()
    return chain


def _all_of_chain(_: _ChainWalk, ids: Sequence[LedgerId]) -> list[LedgerId]:
    """A ledger that an earlier restore has left out is listed."""
    return list(ids)


def _repaired_by_copies(walk: _ChainWalk, ledger_id: LedgerId, record: LedgerMetadata | None) -> bool:
    """A member that is emptied is waited for."""
    asked = walk._evidence.asked
    walk._evidence.asked = replace(asked, emptied=frozenset())
    try:
        return _repaired(walk, ledger_id, record)
    finally:
        walk._evidence.asked = asked


def _limbo_twice(evidence: Evidence, ledger_id: LedgerId) -> int:
    """A node in limbo counts as silent, too."""
    return _unseen(evidence, ledger_id) + len(evidence.inventories.keys() & {*evidence.asked.absent})


def _is_in_chain(_: _ChainWalk, __: LedgerId) -> bool:
    """Floors, and tombstones of deleted ledgers, are not looked at."""
    return True


def _without_tombstones(newest: NewestRecords) -> NotedRecords:
    """Deletions are not noted."""
    return NotedRecords(_noted(newest).names)


# --- storage nodes ----------------------------------------------------------------------------------------------------


def _refuses_nobody(_: StorageServer, __: Era) -> bool:
    """The era in the header of a call is not compared."""
    return False


def _append_of_any_era(server: StorageServer, *arguments: Any, **how: Any) -> None:
    _append(server, *arguments, **how | {"era": server.core.era})


#: (name, hazard, first seed, swaps)
RESTORE_MUTANTS: tuple[tuple[str, str, int, tuple[tuple[Any, str, Any], ...]], ...] = (
    (
        "a snapshot behind the whole log is too old", "indexes-after-a-trim", 5_063_736,
        ((LogFold, "cannot_begin", _behind_a_ledger),),
    ),
    ("head names the fold of the takeover", "", 5_000_001, ((Serving, "head", _as_of_the_takeover),)),
    ("head in the first ledger of an owner only", "", 5_000_001, ((ManagedLedger, "_begin", _once),)),
    (
        "head counts what a failed write has appended", "refused-then-stored", 5_000_003,
        ((Serving, "head", _appended_counts), (ManagedLedger, "linked", _remember_the_end)),
    ),
    (
        "snapshot that no node has is missed", "snapshot-that-was-never-acknowledged", 5_870_075,
        ((_ChainWalk, "_snapshots", _all_listed),),
    ),
    (
        "deletion of a former era believed", "the-lost-ensemble-returns", 5_870_006,
        ((MemberRequests, "until_era_is_proved", _at_once),),
    ),
    (
        "missing topic of a former era believed", "the-lost-ensemble-returns", 5_870_006,
        ((MetadataServer, "until_era_is_proved", _said_at_once),),
    ),
    (
        "trim of a former era believed", "deletion-in-a-former-era", 5_910_562,
        ((inventories, "_since_its_era", _all_records),),
    ),
    (
        "note of a former era believed", "note-of-a-former-era", 5_993_975,
        ((CopiedEra, "believes", lambda *_: True),),
    ),
    (
        "era at one node", "era-at-one-node", 5_000_001,
        ((Restorer, "_raise", _raise_one), (Restorer, "_collect", _collect_of_any_era)),
    ),
    (
        "inventory before the era", "inventory-before-the-era", 5_000_017,
        ((Restorer, "_survey", _inventory_first), (Restorer, "_collect", _collect_what_was_read)),
    ),
    (
        "another restore counts as raised", "two-restores", 5_000_076,
        ((Restore, "_raised", _raise_any_restore), (Restore, "_collected", _collect_of_any_restore)),
    ),
    (
        "ballots are compared by the era only", "two-restores", 5_000_076,
        (
            (StoredEra, "raised", _by_number), (Restore, "_raised", _raise_any_restore),
            (Restore, "_collected", _collect_of_any_restore),
        ),
    ),
    ("half of the nodes are enough", "two-restores", 5_000_077, ((Restore, "_too_few", _half_is_enough),)),
    (
        "counters of the lost store", "ids-again", 5_000_000,
        ((restoring, "_records", _counters_of_the_lost_store),),
    ),
    (
        "former ignored", "former-ignored", 5_000_003,
        ((_ChainWalk, "_walk", _by_ids), (_ChainWalk, "result", _without_findings)),
    ),
    (
        "ends by the copies", "a-tail-that-was-given-up", 5_000_003,
        ((_ChainWalk, "_walk", _without_ends), (_ChainWalk, "result", _without_findings)),
    ),
    (
        "floor ignored", "floor-ignored", 5_000_017,
        ((_ChainWalk, "_in_chain", _is_in_chain), (_ChainWalk, "result", _without_findings)),
    ),
    (
        "a left-out ledger is listed", "left-out-ledger-returns", 5_000_173,
        ((_ChainWalk, "_of_chain", _all_of_chain),),
    ),
    (
        "a restore keeps no copy", "left-out-ledger-returns", 5_001_019,
        ((KeptCopies, "add", _only_of_the_cluster),),
    ),
    ("node in limbo counts twice", "limbo-counts-as-asked", 5_700_289, ((Evidence, "unseen", _limbo_twice),)),
    (
        "emptied member is waited for", "refilled-member", 5_300_099,
        ((_ChainWalk, "_repaired", _repaired_by_copies),),
    ),
    (
        "nothing is given up beyond the bound", "limbo-counts-as-asked", 5_000_039,
        ((trees, "topic_of", lambda topic, _: topic.record),),
    ),
    (
        "reader stays at an empty ledger", "tail-in-front-of-a-reader", 5_000_022,
        ((ReaderClient, "_resumed", lambda reader: reader.next),),
    ),
    (
        "era of calls not compared", "the-lost-ensemble-returns", 5_000_007,
        ((StorageServer, "refuses", _refuses_nobody), (StorageServer, "append", _append_of_any_era)),
    ),
    ("deletions not noted", "revoked-right-returns", 5_000_000, ((NewestRecords, "noted", _without_tombstones),)),
    ("deletion answered before it is noted", "revoked-right-returns", 5_000_629, ((deletions, "ACK_QUORUM", 1),)),
)  # fmt: skip
