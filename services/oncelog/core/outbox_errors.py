"""Errors of an outbox and its relay. Each message names both places, the log's and the outbox's, and what helps."""

from oncelog.core.errors import EffectsError

#: What applications may catch: `oncelog.errors` exports these names.
__all__ = ["LogLostMessages", "OutboxDiverged", "OutboxMisuse", "OutboxRestored", "TopicRecreated"]


class OutboxMisuse(EffectsError):
    """A row would be inserted outside of a transaction."""


class OutboxDiverged(EffectsError):
    """The log has another message under a number than the outbox; details: topic, number."""


class OutboxRestored(EffectsError):
    """The log has numbers that the outbox has not given yet: the database was restored; details: topic,
    last_sequence_id, next_number."""


class LogLostMessages(EffectsError):
    """The log does not have messages that it had answered: it was restored; details: topic, first, last (numbers)."""


class TopicRecreated(EffectsError):
    """The topic was deleted and created again, or belongs to another cluster; details: topic."""
