"""Why a request to open a producer is refused, in words for its client."""

from oncelog.core.errors import ModeMismatch, ProducerBusy, ProducerFenced, SessionSuperseded
from oncelog.core.formats.entry import SequenceMode
from oncelog.core.ids import Generation

_GIVEN_UP = (
    "entries of this topic were given up, and messages of this producer may be lost: open the producer again, and send "
    "again what comes behind its last_sequence_id"
)


def fenced_by(current: Generation) -> ProducerFenced:
    message = f"a newer instance has this producer name (generation {current}): stop this one"
    return ProducerFenced(message, current=current)


def given_up(current: Generation) -> ProducerFenced:
    return ProducerFenced(_GIVEN_UP, current=current)


def late_client(epoch: int | None, latest: int | None) -> ProducerFenced:
    """epoch: of the client's opening. latest: of the session that it would have ended."""
    return ProducerFenced(
        f"the client of this gateway has a session of epoch {latest}, and this opening has epoch {epoch}: it belongs "
        "to a connection that the client has left, or to a copy of the client. Stop this one"
    )


def superseded_session(epoch: int | None) -> SessionSuperseded:
    return SessionSuperseded(
        f"the client of this gateway goes on in a session that it has opened later, of epoch {epoch}: nothing more "
        "comes of this one"
    )


def busy(name: str | None) -> ProducerBusy:
    message = f"another instance of {name!r} is connected"
    return ProducerBusy(f"{message}: wait until it ends, or open with on_conflict='fence'")


def mode_mismatch(name: str | None, mode: SequenceMode) -> ModeMismatch:
    own = mode.name.lower()
    if mode is SequenceMode.EPOCHED:
        return ModeMismatch(f"producer {name!r} is {own}, which only gateways open: use another name")
    return ModeMismatch(f"producer {name!r} is {own}: open it with sequence_mode={own!r}, or use another name")
