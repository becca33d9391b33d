"""Errors of stores of effects. Each message names both places, the log's and the store's, and what helps."""

from oncelog.core.errors import EffectsError, Retriable

#: What applications may catch: `oncelog.errors` exports these names.
__all__ = [
    "EffectMisuse",
    "EffectsFenced",
    "NotDeterministic",
    "PartialEffect",
    "PartitionsDiffer",
    "RedoLost",
    "SourceDiverged",
    "SourceTooLarge",
    "SourceTrimmed",
    "SourceUnsupported",
    "StoreAhead",
    "StoreBusy",
    "StoreDiverged",
    "StoreMissing",
    "StoreNotTransactional",
    "StoreSchemaTooNew",
    "StoreSchemaTooOld",
    "StoreTooOld",
]


class StoreBusy(Retriable):
    """Another process holds the store; the message names it."""


class EffectsFenced(Retriable):
    """Another consumer has the store since: this one waits until it is active again."""


class StoreMissing(EffectsError):
    """The log knows the store of the effects, and the store has no row of them (hazard effects-table-dropped)."""


class StoreTooOld(EffectsError):
    """The store lacks effects of messages that the log has deleted or forgotten; details: position, first_index."""


class StoreAhead(EffectsError):
    """The store has effects of messages that the log does not have: the log was restored; details: position,
    next_index."""


class StoreDiverged(EffectsError):
    """The store has the effects of another message at an index than the log has there: one of both was restored."""


class RedoLost(EffectsError):
    """The store knows a redo that the log does not know any more; details: redo_epoch of both."""


class StoreSchemaTooNew(EffectsError):
    """The tables in the store are of a later version of Oncelog than this one reads."""


class StoreSchemaTooOld(EffectsError):
    """The tables in the store lack what a later version of Oncelog has added, and this program may not add it."""


class StoreNotTransactional(EffectsError):
    """The store does not roll back: position and effect could differ."""


class EffectMisuse(EffectsError):
    """The application's function would end the transaction of its effect, or use it after its end."""


class NotDeterministic(EffectsError):
    """Other outputs of a message are stored than the function gives now (hazard outputs-of-another-code)."""


class SourceDiverged(EffectsError):
    """A mirror's source has another message at an index than the one that was copied (hazard restored-source)."""


class SourceTooLarge(EffectsError):
    """A message of a mirror's source is larger than its target takes in one batch, as one in chunks; details: index."""


class SourceTrimmed(EffectsError):
    """The source of a mirror has deleted messages that were not copied; details: next_index, first_index."""


class SourceUnsupported(EffectsError):
    """A message of a mirror's source has a value that mirrors do not copy: a null or an encrypted one of a client of
    Pulsar; details: index."""


class PartitionsDiffer(EffectsError):
    """A mirror's source and target have different numbers of partitions; details: source, target."""


class PartialEffect(EffectsError):
    """A command of an effect in Redis has failed, and those before it have taken effect: nothing is applied until
    `oncelog effects resolve`; details: index, command, error."""
