"""Which opening of a gateway's client wins, decided by what it presents.

A gateway is an ordinary client with clients of its own. One of these may lose its connection and come back through
another gateway, which knows nothing of the first one. So it presents the token of its last grant, and its epoch: a
number that grows with each of its openings.

    token absent         a new instance
    current              the same instance goes on in a new session, without an entry in the log; the former session
                         ends as superseded, which is final for its gateway (hazard sessions-end-each-other)
    older                fenced: a newer instance has the name (hazard zombie-takes-its-name-back)
    of another producer  a new instance: the topic was made again, or the name has expired
    newer                than this owner knows: the owner may be deposed. Once it has proved that it is not, the log was
                         restored, and the client is a new instance

Openings of one instance are ordered by epoch. One that is not above that of the session it would end is fenced: it is
a late request of a connection that the client has left, or comes from a copy of the client. A gateway that resumes its
own session, after a takeover, presents its epoch again and obeys the same order.
"""

from enum import Enum
from typing import NamedTuple

from oncelog.core.formats.opening import ClientToken, GatewayClient
from oncelog.core.ids import Generation, InstanceId


class TokenVerdict(Enum):
    """What a token is worth."""

    CURRENT = "current"
    OLDER = "older"
    OF_ANOTHER = "of another producer"
    NEWER = "newer"
    #: a grant of this name is in flight
    UNDECIDED = "undecided"


class KnownProducer(NamedTuple):
    """What the owner knows of the name. check: of a token for it. durable: the grant of `current` is durable."""

    check: int
    current: Generation
    durable: bool


class SessionClient(NamedTuple):
    """The client of a gateway that has a session, or has lost one a moment ago. instance_id: of the gateway's half of
    the session, which is another one for each opening of the client."""

    instance_id: InstanceId
    epoch: int | None


def verdict_on(token: ClientToken, known: KnownProducer | None) -> TokenVerdict:
    """known: None: nothing has the name."""
    if known is None or known.check != token.check:
        return TokenVerdict.OF_ANOTHER
    if not known.durable:
        return TokenVerdict.UNDECIDED
    if token.generation == known.current:
        return TokenVerdict.CURRENT
    return TokenVerdict.OLDER if token.generation < known.current else TokenVerdict.NEWER


def comes_late(client: GatewayClient, instance_id: InstanceId, holder: SessionClient | None) -> bool:
    """Whether an opening of this client, or a resumption, must not end the session of `holder`: of the same producer
    instance."""
    if holder is None or holder.instance_id == instance_id:
        return False
    return client.epoch is not None and holder.epoch is not None and client.epoch <= holder.epoch
