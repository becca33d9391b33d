"""The record of an idempotency key: a fingerprint of its messages, their sequence ids, and the answer.

It is stored as JSON with a format number. Records change by compare-and-set only, against the stored bytes.
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
    """fingerprint: digest of the messages. answer: None while pending, then the answer to return."""

    fingerprint: str
    claim: Claim
    answer: str | None = None


@dataclass(frozen=True, slots=True)
class FoundKey:
    """A record as stored. stored: its bytes, which the next compare-and-set names."""

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
        raise CorruptEntry(f"the record of an idempotency key is corrupt: {error!r}") from error
