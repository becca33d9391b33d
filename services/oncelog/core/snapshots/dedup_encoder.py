"""Encodes the producers of one snapshot in bounded steps, while the log goes on.

Law: the chunks of all steps, read in order, are the state as of the last step. A producer that changes after it was
encoded is encoded again at the end, and of several records of a producer the last one counts. So nothing is copied and
nothing waits, and only the last step must be one with the position of the snapshot.

Usually everything fits into the first step, which is then also the last.
"""

from dataclasses import dataclass, field

from oncelog.core.formats.batch import Checksum
from oncelog.core.ids import ProducerId
from oncelog.core.publishing.dedup_state import DedupState
from oncelog.core.snapshots.dedup_format import encode_chunks

#: Producers of one step: about 7 ms.
STEP_PRODUCERS = 3000
#: How often the producers that have changed meanwhile are encoded in steps of their own. Each round is much smaller
#: than the one before, unless producers change faster than they are encoded; then the last step is a long one.
_ROUNDS_MAX = 4


@dataclass(slots=True)
class SnapshotEncoder:
    """base: encode all producers, else those that have changed since the last snapshot.

    chunks_count, crc, size_bytes: of the chunks of all steps so far. done: the last step was made.
    """

    state: DedupState
    number: int
    checksum: Checksum
    base: bool
    step_producers: int = STEP_PRODUCERS
    chunks_count: int = 0
    crc: int = 0
    size_bytes: int = 0
    done: bool = False
    #: what is to be encoded in this round, and how much of it is
    _round: list[ProducerId] = field(init=False)
    _at: int = 0
    _rounds: int = 1

    def __post_init__(self) -> None:
        state = self.state
        self._round = list(state.producers if self.base else state.dirty)
        state.dirty.clear()

    def step(self) -> list[bytes]:
        """The chunks of the next step, at least one, unless nothing was left to encode in the last step."""
        state, pids = self.state, self._take()
        if self._at == len(self._round):
            changed = self._changed()
            if len(pids) + len(changed) <= self.step_producers or self._rounds == _ROUNDS_MAX:
                pids += changed
                self.done = True
            else:
                self._round, self._at = changed, 0
                self._rounds += 1
        if self.done and self.chunks_count and not pids:
            return []
        chunks = encode_chunks(self.number, map(state.producers.record, pids), first_index=self.chunks_count)
        self.chunks_count += len(chunks)
        for chunk in chunks:
            self.crc = self.checksum(chunk, self.crc)
            self.size_bytes += len(chunk)
        return chunks

    def _changed(self) -> list[ProducerId]:
        """The producers that have changed since this round began."""
        changed = list(self.state.dirty)
        self.state.dirty.clear()
        return changed

    def _take(self) -> list[ProducerId]:
        """The next producers of this round."""
        taken = self._round[self._at : self._at + self.step_producers]
        self._at += len(taken)
        return taken
