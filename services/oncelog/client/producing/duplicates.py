"""Which answers of the log are errors although nothing failed: a message was not stored, and may be in no log.

What may be lost is an error unless the application accepts it.

- Unverified: a monotonic sequence id below everything that the owner remembers of its producer. That is right for a
  program that repeats what it sent long ago. For a program whose ids started again below that point it means the loss
  of every message.
- Other content: the batch that is stored under these ids is not the one that was sent. Where the owner cannot compare
  them, the content counts as unknown, which is no error (see `core.publishing.repeated_content`).
"""

from dataclasses import dataclass
from enum import StrEnum

from oncelog.client.values.arguments import choice
from oncelog.client.values.results import AnsweredRange, TopicPartition, message_id_at
from oncelog.core.errors import ContentDiffers, OncelogError, UnverifiedSequence
from oncelog.core.formats.outcome import ResultKind, ResultRange

_UNVERIFIED = (
    "the sequence id is older than all ids that the log remembers of this producer: the message was not stored now, it "
    "is unknown whether it was ever stored, and sending it again gives the same answer. If the message is new, send it "
    "with an id above last_sequence_id, or under another producer name. If your program sends everything again from a "
    "source that keeps it, begin behind last_sequence_id, or use on_unverified='accept'"
)
_WHAT_TO_DO = (
    "If it is new, send it with an id above last_sequence_id, or under another producer name. If the stored message "
    "stands for it, use on_content_differs='accept'"
)


class OnUnverified(StrEnum):
    """RAISE: an unverified message fails with UnverifiedSequence. ACCEPT: it is a success with verified=False."""

    RAISE = "raise"
    ACCEPT = "accept"


class OnContentDiffers(StrEnum):
    """RAISE: a duplicate with other content fails with ContentDiffers. ACCEPT: it is a duplicate like any other, with
    content_differs=True."""

    RAISE = "raise"
    ACCEPT = "accept"


@dataclass(frozen=True, slots=True)
class DuplicateRules:
    """What a producer accepts.

    comparable False: the producer puts something into each message that differs between attempts, so that a difference
    says nothing.
    """

    on_unverified: OnUnverified = OnUnverified.RAISE
    on_content_differs: OnContentDiffers = OnContentDiffers.RAISE
    comparable: bool = True

    def applied(self, ranges: list[AnsweredRange], topic: TopicPartition) -> list[AnsweredRange]:
        """The results of consecutive messages, with an error for each that these rules refuse."""
        return [self._applied(answered, topic) for answered in ranges]

    def _applied(self, answered: AnsweredRange, topic: TopicPartition) -> AnsweredRange:
        stored = answered.stored
        if stored is None:
            return answered
        if stored.content_differs and not self.comparable:
            return answered._replace(stored=stored._replace(content_differs=None))
        error = self._error_of(stored, topic)
        return answered if error is None else AnsweredRange(answered.size, None, error=error)

    def _error_of(self, stored: ResultRange, topic: TopicPartition) -> OncelogError | None:
        if stored.kind is ResultKind.BELOW_MARK and self.on_unverified is OnUnverified.RAISE:
            return UnverifiedSequence(_UNVERIFIED)
        if stored.content_differs and self.on_content_differs is OnContentDiffers.RAISE:
            return _other_content(stored, str(message_id_at(topic, stored, 0)))
        return None


def _other_content(stored: ResultRange, message_id: str) -> ContentDiffers:
    if stored.count == 1:
        message = f"another message is stored under this sequence id, at {message_id}: this one was not. {_WHAT_TO_DO}"
        return ContentDiffers(message, message_id=message_id).of_send(stored=False)
    # Which of the messages differ is unknown, so the others may be stored as they are.
    return ContentDiffers(
        f"the {stored.count} messages that are stored under the sequence ids of this batch, from {message_id} on, are "
        "not those of this batch: at least one differs, and none was stored now. Read them, or send the messages one "
        f"by one, to see which. {_WHAT_TO_DO}",
        message_id=message_id,
    )


_ON_UNVERIFIED: dict[str, OnUnverified] = {each.value: each for each in OnUnverified}
_ON_CONTENT_DIFFERS: dict[str, OnContentDiffers] = {each.value: each for each in OnContentDiffers}


def rules_of(on_unverified: str, on_content_differs: str, *, comparable: bool) -> DuplicateRules:
    """Of the arguments of `create_producer`. Raises InvalidArgument."""
    return DuplicateRules(
        choice("on_unverified", _ON_UNVERIFIED, on_unverified),
        choice("on_content_differs", _ON_CONTENT_DIFFERS, on_content_differs),
        comparable,
    )


REFUSE_ALL = DuplicateRules()
ACCEPT_ALL = DuplicateRules(OnUnverified.ACCEPT, OnContentDiffers.ACCEPT)
