"""Limbo: what a node may still conclude from its records after its directory lost some of them (hazard damaged-fence).

    start with a hole --LIMBO(n)--> every ledger below n is in limbo; n is the synced ledger counter of that moment
    in limbo --the ledger is CLOSED and 0..end is held and sound, or proved lost: LIMBO_CLEARED--> not in limbo
    in limbo --the ledger's copy is erased: LEDGER_ERASED--> not in limbo
    no ledger is in limbo any more, and each was reviewed --LIMBO(0)--> the directory lacks nothing: limbo is over
    any --the next start with a hole--> in limbo again

Any record may have been in the hole: a fence, an entry or a tombstone. So of a ledger in limbo
- ordinary adds are answered READ_ONLY: a lost fence may forbid them, and FENCED would depose a current owner;
- an entry that is not found is answered as unreadable, never as missing;
- fences, recovery adds and repair adds are accepted as always.
A torn tail is no hole: nothing in it was acknowledged (hazard damage-like-a-torn-write).
"""

from oncelog.core.ids import LedgerId


class Limbo:
    """Which ledgers are in limbo."""

    def __init__(self) -> None:
        #: ledgers with lower ids may be in limbo; 0: none ever was
        self.below = LedgerId(0)
        #: ledgers whose limbo ended since the last hole was found
        self._ended: set[LedgerId] = set()

    def begin(self, below: LedgerId) -> None:
        self.below = max(self.below, below)
        self._ended.clear()

    def end(self, ledger_id: LedgerId) -> None:
        self._ended.add(ledger_id)

    def over(self) -> None:
        """No ledger is in limbo any more, and none may be."""
        self.below = LedgerId(0)
        self._ended.clear()

    def covers(self, ledger_id: LedgerId) -> bool:
        """Whether the ledger is in limbo."""
        return ledger_id < self.below and ledger_id not in self._ended
