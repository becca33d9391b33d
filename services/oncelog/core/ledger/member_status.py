"""The status codes in the responses of a storage node. The numbers are those of the wire."""

from enum import IntEnum


class AppendStatus(IntEnum):
    """The outcome of an add."""

    OK = 1
    FENCED = 2
    WRONG_INCARNATION = 3
    NOT_WRITABLE = 4
    CORRUPT = 5
    CONFLICTING = 6
    READ_ONLY = 7
    TOO_MANY_REQUESTS = 8
    #: the node has erased its copy of the ledger; this proves nothing about the entry (hazard
    #: answer-of-a-former-member)
    ERASED = 9


class ReadStatus(IntEnum):
    """The outcome of a read or a fence."""

    OK = 1
    WRONG_INCARNATION = 3
    TOO_MANY_REQUESTS = 8
    #: the node has erased its copy of the ledger: neither a copy nor a negative (hazard answer-of-a-former-member)
    ERASED = 9


class CopyState(IntEnum):
    """What a node has of one ledger, after it read the ledger's record."""

    HELD = 1
    #: entries of the ledger may be missing because of damage
    LIMBO = 2
    #: known entries are unreadable
    DAMAGED = 3
    ERASED = 4
    #: the node never held anything of it
    ABSENT = 5


class FenceState(IntEnum):
    """Whether a member takes ordinary adds of one ledger."""

    #: it does
    HELD = 1
    FENCED = 2
    #: it does not hold the ledger, or has not yet checked the ledger's record
    UNKNOWN = 3
