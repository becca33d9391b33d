"""Places in a topic: Pulsar's message ids as JSON, in terms of this cluster's REST."""

from typing import Any

from oncelog_doors.core.rest.fields import Field, Ignored, properties_of, read_fields
from oncelog_doors.core.rest.refusals import refused_field

_LATEST = (1 << 63) - 1
_EARLIEST = -1
_FIELDS: dict[str, Field] = {
    "ledgerId": int,
    "entryId": int,
    "batchIndex": int,
    # Of the library: the partition is in the name of the topic, and a batch is where it is, whatever its size.
    "partitionIndex": int,
    "batchSize": int,
    "excluded": bool,
    "properties": dict,
    "topicPartitionName": Ignored(()),
}


def place_of(body: Any) -> dict[str, Any]:
    """The place that a message id names, as the body of a seek: that message itself, or, excluded, the one behind it.

    ledgerId and entryId -1: the earliest message; the highest number: the latest. Raises Refused."""
    given = read_fields(body, _FIELDS, required=("ledgerId", "entryId"))
    ledger, entry, index = given["ledgerId"], given["entryId"], given.get("batchIndex", -1)
    if ledger == entry == _EARLIEST:
        return {"position": "earliest"}
    if ledger == entry == _LATEST:
        return {"position": "latest"}
    for name, number in (("ledgerId", ledger), ("entryId", entry)):
        if not 0 <= number < _LATEST:
            raise refused_field(name, f"must be 0 to {_LATEST - 1}; -1 for both: the earliest message")
    message_id = f"{ledger}:{entry}" if index < 0 else f"{ledger}:{entry}:{index}"
    return {"message_id": message_id, "inclusive": not given.get("excluded", False)}


def subscription_of(body: Any) -> dict[str, Any]:
    """The body of a new subscription, which begins at a message id, the earliest or the latest message. Raises
    Refused."""
    if body is None or body == {}:
        return {"start": {"position": "latest"}}
    if body in ("earliest", "latest"):
        return {"start": {"position": body}}
    place = place_of(body)
    properties = properties_of(body.get("properties") or {})
    return {"start": place} | ({"properties": properties} if properties else {})


def id_of(message_id: str) -> tuple[int, int]:
    """Ledger and entry of a message id of REST, ledger:entry or ledger:entry:index."""
    ledger, entry, *_ = message_id.split(":")
    return int(ledger), int(entry)
