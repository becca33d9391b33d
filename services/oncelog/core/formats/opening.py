"""The values of a request to open a producer, and of its grant."""

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from oncelog.core.formats.entry import SequenceMode
from oncelog.core.ids import (
    NO_INSTANCE,
    NO_SEQUENCE,
    Generation,
    InstanceId,
    OwnerEpoch,
    ProducerId,
    SequenceId,
    SessionNumber,
)


class OnConflict(IntEnum):
    """What an opening does when another instance holds the name. FENCE: end it. REFUSE: raise ProducerBusy."""

    FENCE = 1
    REFUSE = 2


class ProducerInstance(NamedTuple):
    """One instance of a producer: the id that stands for its name, and its generation."""

    producer_id: ProducerId
    generation: Generation


class ClientToken(NamedTuple):
    """What a client of a gateway was granted, and presents when it comes back: see `client_token`."""

    generation: Generation
    check: int


class GatewayClient(NamedTuple):
    """The client for which a gateway opens a producer.

    epoch: higher than that of each former opening of the client; None: the client does not count them, so the later one
    wins. token: None: it wants a new instance, or the gateway resumes a session of its own.
    """

    epoch: int | None = None
    token: ClientToken | None = None


class Lease(NamedTuple):
    """What a request for a lease says. producer_id None: a new producer. generation: the current one renews the lease;
    None: the next one is granted, which fences the holder. lifetime_ms: as `lease_ms` gives it; 0: as the policies say,
    or, of a renewal, as before."""

    producer_id: ProducerId | None
    generation: Generation | None
    lifetime_ms: int


@dataclass(frozen=True, slots=True)
class ProducerOpening:
    """A request of a producer for a session, or for a lease without one. call: identifies the request for the shell.
    name None: assign one.

    resume: the same instance continues after its connection was lost. present: it opens by name again, and presents
    its id and generation. role: of the caller; empty without authentication. takes_any_name: names that belong to other
    roles are allowed. instance_id: a repeated request with the same one joins the earlier request and its grant.
    producers_elsewhere: of the other topics of the namespace at this owner, when the request came.
    growths: recorded for a new name, see ProducerOpened. lease: what is asked for; then neither name nor resume nor
    present is given. peer: host:port of the client; empty: unknown. initial_mark:
    of a new name: ids up to it count as stored, because another cluster has stored them (hazard producer-fails-over).
    client: whom a gateway opens it for; None: not of a gateway.
    """

    call: int
    name: str | None
    mode: SequenceMode = SequenceMode.MONOTONIC
    on_conflict: OnConflict = OnConflict.FENCE
    resume: ProducerInstance | None = None
    present: ProducerInstance | None = None
    owner_epoch_seen: OwnerEpoch = OwnerEpoch(0)
    instance_id: InstanceId = NO_INSTANCE
    role: str = ""
    takes_any_name: bool = True
    growths: int = 0
    lease: Lease | None = None
    producers_elsewhere: int = 0
    peer: str = ""
    initial_mark: SequenceId = NO_SEQUENCE
    client: GatewayClient | None = None


class Leased(NamedTuple):
    """A lease that is durable. last_sequence_id: the highest one that is stored; -1: none. A new generation cannot be
    overtaken by what the former one has in flight. expires_in_ms: it lives at least so long from now on, and from each
    message and renewal on."""

    name: str
    instance: ProducerInstance
    last_sequence_id: SequenceId
    expires_in_ms: int


class Granted(NamedTuple):
    """An open session. final: the grant is durable, so no other session can change last_sequence_id. growths: as
    recorded when the name was first opened. for_client: of a gateway."""

    session: SessionNumber
    name: str
    instance: ProducerInstance
    last_sequence_id: SequenceId
    final: bool
    growths: int = 0
    for_client: bool = False
