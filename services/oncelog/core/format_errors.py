"""Errors of messages that a program does not read although nothing is damaged: nothing is skipped for them."""

from oncelog.core.errors import Fatal

#: What applications may catch: `oncelog.errors` exports these names.
__all__ = ["MessageEncrypted", "UnknownFormat"]


class UnknownFormat(Fatal):
    """A batch has a payload format or a flag of a later version. Or a producer sent a format that needs a higher level
    of the cluster. details: payload_format, flags, level."""


class MessageEncrypted(Fatal):
    """A message was encrypted by its producer, and only a program with its key can read it. Readers and consumers with
    on_encrypted="pass" get it as an EncryptedMessage."""
