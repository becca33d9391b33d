"""Faults of single copies in runs with repair: the medium spoils entries, or a sound copy differs from the others.

Each one waits for a moment at which all members of a whole ledger hold everything, and every other directory can be
done without (`core.repair.node_removal`), so that the faults alone explain no lost entry.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from oncelog.core.formats.entry import body_of, encode_header, peek_header
from oncelog.core.ids import NO_ENTRY, EntryId, LedgerId
from oncelog.core.ledger.metadata import LedgerMetadata
from oncelog.core.node.node import DamageFound
from oncelog.core.node.node_ledger import ENTRY_KINDS, JournalRecord
from tests.simulation.faults.storage_faults import listed_records, may_lose
from tests.simulation.servers.nodes.storage_server import StorageServer

if TYPE_CHECKING:
    from tests.simulation.faults.faults import Faults


class SoundLedger:
    """A whole ledger, and its members in any order."""

    def __init__(self, faults: "Faults", record: LedgerMetadata, members: list[StorageServer]) -> None:
        self.faults = faults
        self.record = record
        self.members = faults.world.rng.sample(members, len(members))

    @property
    def ledger_id(self) -> LedgerId:
        return self.record.ledger_id

    def some_entries(self, count_max: int) -> tuple[EntryId, ...]:
        rng, count = self.faults.world.rng, self.record.end + 1
        return tuple(EntryId(n) for n in sorted(rng.sample(range(count), rng.randint(1, min(count_max, count)))))

    def spoil(self, server: StorageServer, ids: tuple[EntryId, ...]) -> None:
        """The medium spoils these entries at one member; a scrubber finds them later."""
        for entry_id in ids:
            server.disk.damaged[self.ledger_id, entry_id] = None
        self.faults.cluster.watch.copies.spoiled.setdefault(self.ledger_id, {})[server.incarnation] = None
        damage = DamageFound(self.ledger_id, ids)
        server.post(self.faults.world.rng.randint(1, 400), "scrubs", lambda: server.handle(damage))


def when_sound(faults: "Faults", do: Callable[[SoundLedger], None]) -> None:
    """Wait for a moment at which all members of a ledger are sound; give up after some time."""

    def look(left: int) -> None:
        found = _sound_ledger(faults) if faults.on else None
        if found is not None:
            do(found)
        elif left and faults.on:
            faults.world.after(20, "looks for sound members", lambda: look(left - 1))

    if faults.cluster.shape.repair:
        look(40)


def _sound_ledger(faults: "Faults") -> SoundLedger | None:
    whole = [record for record in listed_records(faults) if record.verified and record.end >= 1]
    if not whole:
        return None
    record = faults.world.rng.choice(whole)
    places = [faults.cluster.watch.copies.existing(member) for member in record.members]
    members = [server for server in places if server is not None and may_lose(faults, server)]
    return SoundLedger(faults, record, members) if len(members) == record.write_quorum else None


def _is_repaired(faults: "Faults", ledger_id: LedgerId) -> bool:
    """Whether some metadata replica repairs the ledger: of a whole one, this repair began before it was whole."""
    repairers = [replica.repairer for replica in faults.cluster.metadata if replica.alive and replica.repairer]
    return any(ledger_id in repairer.repairs for repairer in repairers)


def spoil(faults: "Faults") -> None:
    """The medium spoils entries of a ledger at one member."""

    def do(ledger: SoundLedger) -> None:
        faults.world.count("entries spoiled")
        ledger.spoil(ledger.members[0], ledger.some_entries(3))

    when_sound(faults, do)


def leave_one_holder(faults: "Faults") -> None:
    """The medium spoils the same entries at two of three members, and the third one reboots (hazard lost-too-early)."""

    def do(ledger: SoundLedger) -> None:
        faults.world.count("only holder of entries away")
        holder, *others = ledger.members
        ids = ledger.some_entries(2)
        for server in others:
            ledger.spoil(server, ids)
        faults.crash(holder, faults.world.rng.randint(600, 1500))
        faults.cluster.expire(f"storage/{holder.incarnation}", holder)

    when_sound(faults, do)


def spoil_everywhere(faults: "Faults") -> None:
    """No member can read some entries for a while; then one of them can read them again, and takes them back from
    what is lost (hazard lost-too-early)."""

    def do(ledger: SoundLedger) -> None:
        faults.world.count("entries spoiled everywhere")
        ids, holder = ledger.some_entries(2), ledger.members[0]
        for server in ledger.members:
            ledger.spoil(server, ids)

        def readable_again() -> None:
            back = faults.cluster.watch.copies.came_back.setdefault(ledger.ledger_id, {})
            for entry_id in ids:
                if (ledger.ledger_id, entry_id) in holder.disk.damaged:
                    del holder.disk.damaged[ledger.ledger_id, entry_id]
                    back[holder.incarnation, entry_id] = None

        faults.world.after(faults.world.rng.randint(800, 1500), "entries can be read again", readable_again)

    when_sound(faults, do)


def make_copies_differ(faults: "Faults") -> None:
    """One member gets another sound copy of an entry, and the medium spoils an entry at another member (hazard
    differing-copies).

    The copy differs in last_add_confirmed, which counts only before the ledger is CLOSED: readers of either copy get
    the same message.
    """

    def do(ledger: SoundLedger) -> None:
        if _is_repaired(faults, ledger.ledger_id):
            return  # a repair that has already compared the changed entry could heal the spoiled one
        if faults.cluster.shape.restores:
            return  # a restore opens a last ledger again, and its recovery meets copies that no writer writes
        faults.world.count("sound copies differ")
        first, second, *_ = ledger.members
        changed = (ledger.ledger_id, EntryId(faults.world.rng.randint(1, ledger.record.end)))
        first.disk.records = [
            _with_other_mark(faults, each) if (each.ledger_id, each.entry_id) == changed else each
            for each in first.disk.records
        ]
        first.index.entries[ledger.ledger_id] = first.disk.held(ledger.ledger_id)
        ledger.spoil(second, ledger.some_entries(1))

    when_sound(faults, do)


def _with_other_mark(faults: "Faults", record: JournalRecord) -> JournalRecord:
    if record.kind not in ENTRY_KINDS:
        return record
    header = peek_header(record.data)._replace(last_add_confirmed=NO_ENTRY)
    body = body_of(record.data)
    return record._replace(data=encode_header(header, body, faults.cluster.watch.checksum) + bytes(body))
