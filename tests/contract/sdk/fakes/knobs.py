"""What tests turn at the fake cluster, and what it has seen."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from oncelog.core.errors import OncelogError
from oncelog.core.formats.opening import GatewayClient
from oncelog.core.ids import InstanceId, SessionNumber
from oncelog.rpc.codecs.owner_codec import OpenRequest
from oncelog.rpc.codecs.reader_codec import StartAt
from oncelog.wire.owner_pb2 import ReadChunkAnswer
from tests.contract.sdk.fakes.fake_offers import FakeMembers

MESSAGE_BYTES_MAX = 5 * 1024 * 1024


def _nothing(_: object) -> OncelogError | None:
    return None


@dataclass(slots=True)
class Knobs:
    """What tests turn. lose_answers: so many frames are stored and their answers lost, with the stream."""

    #: the owner does nothing while this is closed
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    lose_answers: int = 0
    message_bytes_max: int = MESSAGE_BYTES_MAX
    #: a session ends the one that its producer had before, as those of gateways' clients do
    supersedes: bool = False
    #: each name is wanted when it is granted
    wants_at_once: bool = False
    #: whether the owner is of version 9 or later
    knows_gateways: bool = True
    refuse_open: Callable[[OpenRequest], OncelogError | None] = _nothing
    refuse_batch: Callable[[memoryview], OncelogError | None] = _nothing
    may_create: bool = True
    #: (incarnation, address) of the storage nodes of every ledger
    members: tuple[tuple[str, str], ...] = ()
    #: storage nodes from which readers are to read; None: the owner sends everything
    offered: FakeMembers | None = None
    #: called when the last message was asked for, before it is looked for
    before_last_message: Callable[[], None] = lambda: None
    #: called with the topic when a look-up of a partitioned topic is about to be answered
    looked_up: Callable[[str], None] = lambda _topic: None
    #: the answer for the chunk with this entry id, or the error raised
    chunk: Callable[[int], ReadChunkAnswer] = lambda _entry_id: ReadChunkAnswer(trimmed=True)
    #: requests for the names of producers are answered while this is set
    names: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True)
class Seen:
    """What came over the wire. frames, opens: batches and openings of each publish frame received. starts: of read
    streams. refused_look_ups: of topics that do not exist."""

    frames: list[int] = field(default_factory=list)
    opens: list[int] = field(default_factory=list)
    starts: list[StartAt] = field(default_factory=list)
    closed_sessions: list[SessionNumber] = field(default_factory=list)
    #: of gateways: sessions closed with their names kept; sessions whose clients are there; for whom they open
    kept_sessions: list[SessionNumber] = field(default_factory=list)
    held_sessions: list[SessionNumber] = field(default_factory=list)
    clients: list[GatewayClient] = field(default_factory=list)
    instance_ids: list[InstanceId] = field(default_factory=list)
    refused_look_ups: int = 0
