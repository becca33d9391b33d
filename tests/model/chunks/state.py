"""The state of the model of messages in chunks: the ledgers of one topic, its owner, and a producer's instances.

One producer name and one sequence id. Instance 1 sends value A; its successor, which is granted a higher generation,
sends value B. Each value has CHUNKS chunks.
"""

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

CHUNKS = 2


class Place(NamedTuple):
    """Of an entry."""

    ledger: int
    entry: int


class Kind(Enum):
    GRANT = "grant"
    CHUNK = "chunk"
    MESSAGE = "message"


class Entry(NamedTuple):
    """attempt: the session in which it was sent. number: of a chunk. named: the chunks of a message."""

    kind: Kind
    generation: int
    attempt: int = 0
    value: str = ""
    number: int = 0
    named: tuple[Place, ...] = ()


class Ledger(NamedTuple):
    """durable: so many entries are."""

    id: int
    entries: tuple[Entry, ...] = ()
    durable: int = 0
    closed: bool = False


class Upload(NamedTuple):
    """What the owner knows of the chunks of its session."""

    ledger: int
    generation: int
    chunks: tuple[Place, ...] = ()


class Client(NamedTuple):
    """An instance. generation 0: it was not granted. attempt: counts its sessions. sent, named, final: in its session:
    chunks sent, places answered, the message sent. answer: where its message is, as it was told."""

    value: str
    generation: int = 0
    attempt: int = 0
    sent: int = 0
    named: tuple[Place, ...] = ()
    final: bool = False
    answer: Place | None = None


class State(NamedTuple):
    """session: the generation of the instance with the one open session; 0: none. generation: the highest one granted.
    stored: where the owner believes the message to be. budget: of faults that are left."""

    budget: int
    ledgers: tuple[Ledger, ...] = (Ledger(0),)
    clients: tuple[Client, ...] = (Client("A"),)
    session: int = 0
    generation: int = 0
    upload: Upload | None = None
    stored: Place | None = None

    @property
    def last(self) -> Ledger:
        return self.ledgers[-1]

    def with_last(self, ledger: Ledger) -> "State":
        return self._replace(ledgers=(*self.ledgers[:-1], ledger))

    def appended(self, entry: Entry) -> "State":
        return self.with_last(self.last._replace(entries=(*self.last.entries, entry)))

    @property
    def end(self) -> Place:
        """Where the next entry will be."""
        return Place(self.last.id, len(self.last.entries))

    def with_client(self, number: int, client: Client) -> "State":
        clients = list(self.clients)
        clients[number] = client
        return self._replace(clients=tuple(clients))


@dataclass(frozen=True)
class Rules:
    """Those of `core.publishing.uploads`; a variant lacks some."""

    #: only the message moves the producer's mark
    message_alone_counts: bool = True
    #: an upload is lost with its ledger: its next chunk and its message are refused
    one_ledger: bool = True
    #: an upload is lost with its session
    one_session: bool = True
    #: a message must name exactly the chunks of its session's upload
    names_checked: bool = True
    #: only the newest generation may open a session
    fenced: bool = True
    #: a stored id is answered with its position, and not stored again
    deduplicated: bool = True


class Scenario(NamedTuple):
    """faults: how many lost answers, resumed sessions, rolls, failed writes, takeovers, restarts and trims."""

    name: str
    faults: int

    @property
    def start(self) -> State:
        return State(self.faults)
