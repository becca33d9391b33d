"""A message that a client of Pulsar sends in chunks: which chunk may come next, and when its SENDs get receipts.

    chunk 0 ─▶ open ──all chunks are stored──▶ complete ──the message is decided──▶ over
                 │ another message, another chunk: given up
                 │ nothing comes for a while: its receipts go out

Each SEND is a chunk, all have one sequence id, and the log stores a chunk when it comes. Only the message that names
all chunks is one that a reader sees.

- **Receipts are withheld until the message is decided**, and then go out together. So a client whose connection or door
  is lost has all chunks pending, and sends all of them again: nothing is collected in the door, and the message is
  stored once. All receipts have the place of the message.
- **They go out early** if no chunk comes for a while: a client may be waiting for them, because its queue holds fewer
  messages than there are chunks. If its connection is lost then, it sends again what it has no receipt for. A chunk
  without those before it is refused, and the message fails; sent again as a whole, it is stored once.
- **Given up** is a message of which not all chunks come before the next message. Its chunks get receipts with their own
  places: they are stored. The client gets no receipt of the last one, and this one alone means the message.
"""

from dataclasses import dataclass

from oncelog.core.formats.chunks import ChunkName, ChunkNames
from oncelog.core.ids import LedgerId, Position
from oncelog_doors.core.pulsar.verdicts import Accepted, Ids, Rejected, Verdict

#: {number of a SEND among the chunks: what it is answered}
Answers = dict[int, Verdict]


@dataclass(frozen=True, slots=True)
class ChunkPlace:
    """What a chunk says of itself: number is from 0 to count - 1, total_bytes are those of all chunks."""

    uuid: bytes
    number: int
    count: int
    total_bytes: int

    def __str__(self) -> str:
        return f"chunk {self.number} of {self.count}"


def without_first(chunk: ChunkPlace, ids: Ids) -> Rejected:
    return Rejected(
        f"sequence id {ids}: {chunk} came without the chunks before it. A message is stored whole or not at all: send "
        "all of it again"
    )


class Upload:
    """One message in chunks. Numbers are those of its chunks."""

    def __init__(self, first: ChunkPlace, ids: Ids) -> None:
        """first: chunk 0."""
        self.ids = ids
        self._first = first
        self._bytes_given = self._given = 0
        self._ledger_id = LedgerId(0)
        #: {number of a chunk that is stored: its name}
        self._names: dict[int, ChunkName] = {}
        #: {number of a chunk about which the log, or a comparison, has decided: its place, if it was stored now}
        self._settled: dict[int, Position | None] = {}
        #: numbers of SENDs that are not answered
        self._open: dict[int, None] = {}
        self._withholds = True
        self._verdict: Verdict | None = None

    @property
    def all_given(self) -> bool:
        return self._given == self._first.count

    @property
    def waits(self) -> bool:
        """Whether its client has to send the next chunk: all that came are settled."""
        return not self.all_given and len(self._settled) == self._given and self._verdict is None

    @property
    def is_stored(self) -> bool:
        return len(self._names) == self._first.count

    @property
    def is_repeated(self) -> bool:
        """Whether all chunks came, and the log had the message before."""
        return len(self._settled) == self._first.count and not self._names

    def refusal_of(self, chunk: ChunkPlace, ids: Ids, size: int) -> Rejected | None:
        """Why a chunk with so many bytes is not the next one; None: it is."""
        first, last = self._first, self._given == self._first.count - 1
        if ids != self.ids or (chunk.uuid, chunk.count, chunk.total_bytes) != (
            first.uuid,
            first.count,
            first.total_bytes,
        ):
            return without_first(chunk, ids)
        if chunk.number != self._given:
            return Rejected(f"sequence id {ids}: {chunk} came where chunk {self._given} was expected")
        total = self._bytes_given + size
        if total > chunk.total_bytes or (last and total != chunk.total_bytes):
            return Rejected(
                f"sequence id {ids}: the chunks have {total} bytes up to {chunk}, and total_chunk_msg_size says "
                f"{chunk.total_bytes}"
            )
        return None

    def take(self, size: int) -> tuple[int, int]:
        """(number, offset in the value) of the next chunk, which is given to the log, or was decided before it came."""
        number, offset = self._given, self._bytes_given
        self._open[number] = None
        self._given += 1
        self._bytes_given += size
        return number, offset

    def stored(self, number: int, place: Position, checksum: int) -> Answers:
        """The log has stored a chunk there. checksum: of its batch. Returns the answers due."""
        self._ledger_id = place.ledger_id
        self._names[number], self._settled[number] = ChunkName(place.entry_id, checksum), place
        return self.due()

    def repeated(self, number: int) -> Answers:
        """The log has the message, and the same bytes in it. Returns the answers due."""
        self._settled[number] = None
        return self.due()

    @property
    def names(self) -> ChunkNames:
        """What the message says of its chunks; all are stored."""
        names = tuple(self._names[number] for number in range(self._first.count))
        return ChunkNames(self._ledger_id, self._first.total_bytes, names)

    def decided(self, verdict: Verdict) -> Answers:
        """The log, or a comparison with what it has, has decided about the message; once."""
        self._verdict = verdict
        return self.due()

    def release(self) -> Answers:
        """The receipts of the chunks are not withheld any more."""
        self._withholds = False
        return self.due()

    def due(self) -> Answers:
        """The answers that are due now, each once. The receipt of the last chunk means the message."""
        due: Answers = {}
        for number in self._open:
            if self._verdict is not None:
                due[number] = self._verdict
            elif not self._withholds and number in self._settled and number < self._first.count - 1:
                due[number] = Accepted(self._settled[number])
        for number in due:
            del self._open[number]
        return due

    def end(self) -> list[int]:
        """The numbers of SENDs that are not answered, and never will be."""
        left = list(self._open)
        self._open.clear()
        return left
