"""What SUBSCRIBE asks for: where a reader begins, or which subscription the consumer is of.

A reader's subscription is not durable: it holds nothing, and nothing of it is stored.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from oncelog.core.names import PART_CHARACTERS_MAX
from oncelog_doors.core.pulsar.message_ids import FromEnd, FromFirst, FromTime, Start
from oncelog_doors.core.pulsar.server_errors import Refusal, ServerError

SubscriptionType = Literal["exclusive", "failover", "shared", "key_shared"]

_S_MAX = 2**40
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_=:.-]")


@dataclass(frozen=True, slots=True)
class ReaderRequest:
    """What decides in SUBSCRIBE of a reader. start: what its id means; None: it names none. from_first: its initial
    position is the first message. rollback_s: begin so many seconds before now; 0: it does not say."""

    exclusive: bool
    start: Start | None
    from_first: bool
    rollback_s: int = 0


def reader_start(request: ReaderRequest, sought: Start | None, now_ms: int) -> Start | Refusal:
    """Where the reader begins. sought: where the client has sought the reader since it was opened; None: nowhere.

    The sought place counts, whatever the client names: it may have sent SUBSCRIBE before it knew that the seek has
    succeeded, and after a seek by time it names the first message.
    """
    if not request.exclusive:
        sentence = "a subscription that is not durable must be exclusive here: open a reader for each program"
        return Refusal(ServerError.NOT_ALLOWED_ERROR, sentence)
    if sought is not None:
        return sought
    if request.rollback_s:
        return _rolled_back(request.rollback_s, now_ms)
    start = FromEnd() if request.start is None else request.start
    return FromFirst() if isinstance(start, FromEnd) and request.from_first else start


@dataclass(frozen=True, slots=True)
class SubscriptionRequest:
    """What decides in SUBSCRIBE of a durable subscription. sticky: its consumers name the hash ranges of their keys.
    from_first, rollback_s: as of a reader, if the subscription is made. priority: lower values are active first."""

    type: SubscriptionType
    sticky: bool
    from_first: bool
    rollback_s: int = 0
    priority: int = 0
    properties: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a consumer attaches to. start: where the subscription begins if it is made."""

    type: SubscriptionType
    start: Start
    priority: int
    properties: Mapping[str, str]


def subscription_of(request: SubscriptionRequest, now_ms: int) -> Subscription | Refusal:
    if request.sticky:
        sentence = "key_shared consumers cannot choose hash ranges here: use the policy that splits them (auto split)"
        return Refusal(ServerError.NOT_ALLOWED_ERROR, sentence)
    start: Start = FromFirst() if request.from_first else FromEnd()
    if request.rollback_s:
        start = _rolled_back(request.rollback_s, now_ms)
    return Subscription(request.type, start, request.priority, request.properties or {})


def _rolled_back(rollback_s: int, now_ms: int) -> Start:
    return FromTime(max(0, now_ms - 1000 * min(rollback_s, _S_MAX)))


def consumer_name_of(given: str, suffix: str) -> str:
    """The name of a consumer in the log, where the connected consumers of a subscription have different names. Those of
    Pulsar may be the same, may be empty, and may have any characters."""
    front = _NOT_IN_NAMES.sub("-", given)[: PART_CHARACTERS_MAX - len(suffix) - 1] or "consumer"
    return f"{front}:{suffix}"
