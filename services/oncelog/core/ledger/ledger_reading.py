"""A read whose caller waits for the members: which errors prove that an entry is lost, and which only that it is not
available now. Pure.

    no member is left to ask --> the ledger's record is read again, after a sync
        --it names other members--> ask them
        --it lists the entry as lost, or an operator has given up the members that may have it--> EntriesLost
        --every member has refused--> UnreadableEntry
        --a member is still waited for--> another round; after too long a time without progress LedgerUnavailable

Rules
- A refusal is believed only if the record, read after it, still names the same members: repair replaces members of a
  CLOSED ledger, and a former member has erased its copy (hazard answer-of-a-former-member).
- The caller knows that the entries were acknowledged (up to the end of a CLOSED ledger, or its writer's
  last_add_confirmed). An entry that is not found here proves nothing.
"""

from oncelog.core.errors import EntriesLost, LedgerUnavailable, LogHole, UnreadableEntry
from oncelog.core.formats.batch import Checksum
from oncelog.core.ids import EntryId
from oncelog.core.ledger.entry_reading import EntryReading
from oncelog.core.ledger.metadata import LedgerMetadata


class LedgerReading(EntryReading):
    """The read of a ledger with this record."""

    def __init__(
        self, metadata: LedgerMetadata, first: EntryId, last: EntryId, *, checksum: Checksum, headers_only: bool = False
    ) -> None:
        super().__init__(
            metadata.ledger_id,
            metadata.members,
            first,
            last,
            checksum=checksum,
            topic_id=metadata.topic_id,
            headers_only=headers_only,
        )
        # Readers begin with different members of different ledgers.
        self.preferred = metadata.members[metadata.ledger_id % len(metadata.members)]
        self._take_record(metadata)

    def _take_record(self, metadata: LedgerMetadata) -> None:
        self.metadata = metadata
        self.members = metadata.members
        # A member has read back every entry before the record becomes whole.
        self.missing_is_damage = metadata.verified

    def begin_round(self) -> None:
        """Ask the silent members again."""
        self.silent.clear()

    def record_read(self, metadata: LedgerMetadata | None) -> bool:
        """The newest record that the caller can get. Returns whether it names other members than before.

        Raises EntriesLost, UnreadableEntry, LogHole if there is no record.
        """
        if metadata is None:
            raise LogHole(f"ledger {self.ledger_id} has no record any more", ledger_id=self.ledger_id)
        former = self.members
        self._take_record(metadata)
        if self.members == former:
            self._require_hope()
            return False
        self.refusals = {member: why for member, why in self.refusals.items() if member in self.members}
        self.silent = {member: why for member, why in self.silent.items() if member in self.members}
        return True

    def _require_hope(self) -> None:
        """Raise the error of an entry that no member will give."""
        metadata = self.metadata
        for first, last in metadata.lost:
            if first <= self.following <= last:
                raise EntriesLost(
                    f"entries {self.ledger_id}:{self.following} to {self.ledger_id}:{last} are lost: no storage node "
                    "that ever held a copy has one now",
                    ledger_id=self.ledger_id,
                    first=self.following,
                    last=min(last, self.last),
                )
        if set(self.members) - self.refusals.keys() <= set(metadata.given_up):
            self._given_up()
        if len(self.refusals) == len(self.members):
            error = UnreadableEntry(
                f"entry {self.description()}: every storage node of its ledger has refused it",
                ledger_id=self.ledger_id,
                entry_id=self.following,
            )
            error.members = {str(member): refusal.why for member, refusal in self.refusals.items()}
            raise error

    def _given_up(self) -> None:
        """Only members that an operator has given up may have the entry. Raises EntriesLost, unless they all answer."""
        if not self.metadata.survivors:
            last = self.last
        elif len(self.refusals) < len(self.members):
            last = self.following
        else:
            return
        raise EntriesLost(
            f"entries {self.ledger_id}:{self.following} to {self.ledger_id}:{last} are lost: the storage nodes that "
            f"may have a copy were given up by {self.metadata.given_up_by}",
            ledger_id=self.ledger_id,
            first=self.following,
            last=last,
        )

    def unavailable(self) -> LedgerUnavailable:
        """The error after too long a time without progress."""
        waiting_for = [member for member in self.members if member not in self.refusals]
        return LedgerUnavailable(
            f"entries {self.ledger_id}:{self.following} to {self.ledger_id}:{self.last} are unavailable: no storage "
            f"node gives {self.description()}; start these storage nodes, or wait for them",
            ledger_id=self.ledger_id,
            first=self.following,
            last=self.last,
            waiting_for=",".join(waiting_for or self.members),
        )
