"""Where the message of a producer name and a sequence id is: a metadata service asks the owner, as REST does."""

from dataclasses import dataclass
from urllib.parse import urlencode

from oncelog.client.network.backoff import persist
from oncelog.client.network.network import Network
from oncelog.client.network.rest import body_of, path_of
from oncelog.client.values.arguments import integer
from oncelog.core.formats.message_id import MessageId
from oncelog.core.ids import SEQUENCE_ID_MAX
from oncelog.core.names import TopicName, check_producer_name
from oncelog.rpc.codecs.metadata_codec import REST
from oncelog.wire.metadata_pb2 import RestRequest

_CALL_TIMEOUT_MS = 30_000


@dataclass(frozen=True, slots=True)
class FoundMessage:
    """What one topic or partition says.

    Attributes:
        topic: the topic, or the partition.
        state: "stored", "in_flight" (not durable yet), "not_stored" (above all ids of the producer), "never_stored"
            (between stored ids), "not_found" (older, and not in what is kept of the log), "older_than_remembered" (the
            search did not reach all of it), "trimmed", "unknown_producer", or "unknown" (it cannot be told now).
        explanation: the same in words.
        message_id, index: where it is; None if it is not stored, or the place is not known.
        append_time_ms: when it was stored, ms since 1970.
    """

    topic: str
    state: str
    explanation: str
    message_id: MessageId | None
    index: int | None
    append_time_ms: int | None


async def find_message(
    network: Network, topic: TopicName, *, producer_name: str, sequence_id: int, timeout_ms: int | None
) -> list[FoundMessage]:
    """As `AsyncClient.find_message`."""
    query = urlencode(
        {
            "producer_name": check_producer_name(producer_name),
            "sequence_id": integer("sequence_id", sequence_id, 0, SEQUENCE_ID_MAX),
        }
    )
    request = RestRequest(method="GET", target=f"/admin/v2/persistent/{path_of(topic)}/messages/find?{query}")

    async def ask(_: bool) -> list[FoundMessage]:
        limit_ms = _CALL_TIMEOUT_MS if timeout_ms is None else min(timeout_ms, _CALL_TIMEOUT_MS)
        return [_found(each) for each in body_of(await network.lookup.ask(REST, request, timeout_ms=limit_ms))]

    return await persist(ask, timeout_ms=timeout_ms, what=f"the place of {producer_name}:{sequence_id} in {topic}")


def _found(told: dict[str, object]) -> FoundMessage:
    place, index, time_ms = told.get("message_id"), told.get("index"), told.get("append_time_ms")
    return FoundMessage(
        topic=str(told["topic"]),
        state=str(told["state"]),
        explanation=str(told["explanation"]),
        message_id=None if place is None else MessageId.parse(str(place)),
        index=index if isinstance(index, int) else None,
        append_time_ms=time_ms if isinstance(time_ms, int) else None,
    )
