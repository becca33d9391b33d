"""What SUBSCRIBE asks for, and where its reader begins. Readers hold nothing: no subscription is stored."""

from dataclasses import dataclass

from oncelog_doors.core.pulsar.message_ids import FromEnd, FromFirst, FromTime, Start
from oncelog_doors.core.pulsar.server_errors import Refusal, ServerError

_S_MAX = 2**40


@dataclass(frozen=True, slots=True)
class SubscribeRequest:
    """What decides in SUBSCRIBE. start: what its id means; None: it names none. from_first: its initial position is the
    first message. rollback_s: begin so many seconds before now; 0: it does not say."""

    durable: bool
    exclusive: bool
    start: Start | None
    from_first: bool
    rollback_s: int = 0


def reader_start(request: SubscribeRequest, sought: Start | None, now_ms: int) -> Start | Refusal:
    """Where the reader begins. sought: where the client has sought the reader since it was opened; None: nowhere.

    The sought place counts, whatever the client names: it may have sent SUBSCRIBE before it knew that the seek has
    succeeded, and after a seek by time it names the first message.
    """
    if request.durable:
        sentence = (
            "durable subscriptions are not offered yet: open a reader, whose subscription is not durable, or consume "
            "with the SDK or over HTTP"
        )
        return Refusal(ServerError.NOT_ALLOWED_ERROR, sentence)
    if not request.exclusive:
        sentence = "a subscription that is not durable must be exclusive here: open a reader for each program"
        return Refusal(ServerError.NOT_ALLOWED_ERROR, sentence)
    if sought is not None:
        return sought
    if request.rollback_s:
        return FromTime(max(0, now_ms - 1000 * min(request.rollback_s, _S_MAX)))
    start = FromEnd() if request.start is None else request.start
    return FromFirst() if isinstance(start, FromEnd) and request.from_first else start
