"""What is kept under an idempotency key: for which messages, at which place in the log, and how it was answered.

As JSON with a format number. Records change by compare-and-set alone, which names the bytes that it replaces.
"""

import json
from dataclasses import dataclass

from oncelog.core.errors import CorruptEntry
from oncelog.core.formats.record_fields import number, parse_json, text
from oncelog.core.http_publish.keyed_producer import Claim
from oncelog.core.ids import SequenceId

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """What a key stands for. fingerprint: of the messages; answer: None while pending, else as it was given."""

    fingerprint: str
    claim: Claim
    answer: str | None = None


@dataclass(frozen=True, slots=True)
class FoundKey:
    """A record as the store has it; stored: its very bytes, which the next write names."""

    record: KeyRecord
    stored: bytes


def encode_key_record(record: KeyRecord) -> bytes:
    """Bytes that `decode_key_record` reads back."""
    claim = record.claim
    fields = {
        "format": _FORMAT,
        "fingerprint": record.fingerprint,
        "producer_name": claim.producer_name,
        "first": claim.first,
        "count": claim.count,
        "answer": record.answer,
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_key_record(data: bytes) -> KeyRecord:
    """Raises CorruptEntry for what is no such record of this format."""
    try:
        fields = parse_json(data)
        if fields["format"] != _FORMAT:
            raise CorruptEntry(f"the record of a key is of format {fields['format']}: this version reads {_FORMAT}")
        claim = Claim(text(fields, "producer_name"), SequenceId(number(fields, "first")), number(fields, "count"))
        return KeyRecord(text(fields, "fingerprint"), claim, fields["answer"])
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptEntry(f"the record of a key cannot be read: {error!r}") from error
