"""Parses a reader's start position: earliest, latest, a message id, or a time."""

from datetime import datetime

from oncelog.core.errors import InvalidArgument
from oncelog.core.formats.message_id import EARLIEST, LATEST, MessageId


def parse_start(text: str, *, option: str = "from") -> MessageId | datetime:
    """`earliest`, `latest`, `ledger:entry[:index]`, or an ISO time (without a zone: local time).

    Raises InvalidArgument, which names the option.
    """
    if text in {"earliest", "latest"}:
        return EARLIEST if text == "earliest" else LATEST
    if "-" in text:
        try:
            moment = datetime.fromisoformat(text)
            return moment if moment.tzinfo is not None else moment.astimezone()
        except (ValueError, OverflowError) as error:  # local time may have no such year
            raise _not_a_start(text, option) from error
    try:
        return MessageId.parse(text)
    except InvalidArgument as error:
        raise _not_a_start(text, option) from error


def _not_a_start(text: str, option: str) -> InvalidArgument:
    return InvalidArgument(
        f"--{option} must be earliest, latest, a message id (ledger:entry or ledger:entry:index) or a time such as "
        f"2026-01-31T12:00:00+01:00, not {text!r}",
        field=option,
    )
