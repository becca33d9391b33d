"""Message ids of Pulsar's clients as places in a topic."""

from typing import Any

import pytest

from oncelog_doors.core.rest.places import place_of, subscription_of
from oncelog_doors.core.rest.refusals import Refused

HIGHEST = (1 << 63) - 1


def message_id(ledger: object, entry: object, **more: object) -> dict[str, Any]:
    return {"ledgerId": ledger, "entryId": entry, "partitionIndex": -1} | more


@pytest.mark.parametrize(
    ("given", "place"),
    [
        (message_id(-1, -1), {"position": "earliest"}),
        (message_id(HIGHEST, HIGHEST), {"position": "latest"}),
        (message_id(3, 0), {"message_id": "3:0", "inclusive": True}),
        (message_id(3, 7, excluded=True), {"message_id": "3:7", "inclusive": False}),
        (message_id(3, 7, batchIndex=-1, batchSize=0), {"message_id": "3:7", "inclusive": True}),
        (message_id(3, 7, batchIndex=0), {"message_id": "3:7:0", "inclusive": True}),
    ],
)
def test_place(given: object, place: object) -> None:
    assert place_of(given) == place


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (message_id(-1, 3), "ledgerId: must be 0 to"),
        (message_id(3, -1), "entryId: must be 0 to"),
        (message_id(3, HIGHEST), "entryId: must be 0 to"),
        (message_id(True, 3), "ledgerId: must be a whole number, not True"),
        ({"ledgerId": 3}, "entryId: this field is required"),
        (message_id(3, 4, at=5), "at: unknown field"),
        (None, "the body must be an object"),
    ],
)
def test_no_place(given: object, reason: str) -> None:
    with pytest.raises(Refused) as refused:
        place_of(given)
    assert (refused.value.status, refused.value.reason[: len(reason)]) == (400, reason)


def test_new_subscription() -> None:
    assert subscription_of(None) == subscription_of({}) == {"start": {"position": "latest"}}
    assert subscription_of("latest") == {"start": {"position": "latest"}}
    assert subscription_of("earliest") == {"start": {"position": "earliest"}}
    assert subscription_of(message_id(-1, -1, properties={"a": "b"})) == {
        "start": {"position": "earliest"},
        "properties": {"a": "b"},
    }
    with pytest.raises(Refused, match=r"properties\.a: must be a text, not 1"):
        subscription_of(message_id(-1, -1, properties={"a": 1}))
