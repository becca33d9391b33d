"""The token of a gateway's client, as one number that the client keeps and never looks into.

    generation << 31 | check      check: the CRC-32 of the ids of topic and producer, without its highest bit

It is never 0, because generations begin with 1. The check is no secret: names belong to roles. It tells a topic or a
producer from another one that got the same name later.
"""

from zlib import crc32

from oncelog.core.errors import InvalidArgument
from oncelog.core.formats.opening import ClientToken, ProducerInstance
from oncelog.core.ids import GENERATION_MAX, Generation, ProducerId, TopicId

#: The version of processes (`core.process_version`) that knows clients of gateways.
GATEWAY_VERSION = 9
#: What needs it.
PRODUCERS, CONSUMERS, OFFSETS = "producers", "consumers", "offsets of groups"
CHECK_BITS = 31
CHECK_MAX = (1 << CHECK_BITS) - 1
TOKEN_MAX = GENERATION_MAX << CHECK_BITS | CHECK_MAX


def check_of(topic_id: TopicId, producer_id: ProducerId) -> int:
    return crc32(f"{topic_id}/{producer_id}".encode()) & CHECK_MAX


def token_of(topic_id: TopicId, instance: ProducerInstance) -> int:
    """What a client is given that was granted this instance."""
    return instance.generation << CHECK_BITS | check_of(topic_id, instance.producer_id)


def check_level(level: int, what: str = PRODUCERS) -> None:
    """level: of the cluster. what: needs the level. Raises InvalidArgument below GATEWAY_VERSION: an owner of an older
    version would take a client that comes back for a new instance, which fences, and would cut entries."""
    if level < GATEWAY_VERSION:
        raise needs_level(f"and it has level {level}", what)


def needs_level(why: str, what: str = PRODUCERS) -> InvalidArgument:
    return InvalidArgument(
        f"{what} for clients of gateways need level {GATEWAY_VERSION} of the cluster, {why}: upgrade its processes, "
        "and end the upgrade with `oncelog admin cluster finalize`",
        field="client",
        limit=GATEWAY_VERSION,
    )


def decode_token(token: int) -> ClientToken:
    """Raises InvalidArgument for a number that no client was given."""
    if not CHECK_MAX < token <= TOKEN_MAX:
        message = f"a token is {CHECK_MAX + 1} to {TOKEN_MAX}, not {token}"
        raise InvalidArgument(message, field="token", limit=TOKEN_MAX)
    return ClientToken(Generation(token >> CHECK_BITS), token & CHECK_MAX)
