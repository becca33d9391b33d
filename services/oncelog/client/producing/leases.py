"""Leases of producer ids: ids that survive disconnection, and that let a successor continue exactly.

lease -> save the producer id -> publish under it
  after a crash: lease the same id again -> the next generation fences the former program; its highest id says
  which messages are stored
"""

import asyncio
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

from oncelog.client.network.backoff import persist
from oncelog.client.network.network import Network
from oncelog.client.values.arguments import check_type, integer
from oncelog.core.errors import DeadlineExceeded, InvalidArgument, OncelogError
from oncelog.core.formats.entry import SequenceMode
from oncelog.core.formats.opening import ProducerInstance
from oncelog.core.ids import GENERATION_MAX, INSTANCE_ID_BYTES, PRODUCER_ID_MAX, SEQUENCE_ID_MAX, Generation, ProducerId
from oncelog.core.names import TopicName, parse_topic
from oncelog.core.policies.producer_lifetimes import LEASE_MS_MAX, LEASE_MS_MIN
from oncelog.core.sdk.producer.opening import ProducerSettings
from oncelog.rpc.codecs.lease_codec import LEASES_MAX, LeaseCalls, WantedLease, unanswered
from oncelog.rpc.codecs.owner_codec import LEASE_PRODUCER_ID

_LATE_ADVICE = (
    "lease again, which fences a generation that was granted unseen; a new id that was granted unseen expires unused"
)


@dataclass(frozen=True, slots=True)
class LeaseWanted:
    """What to lease.

    Attributes:
        topic: without partitions, or one partition.
        producer_id: None: a new producer. Otherwise the next generation of this one, which fences its holder.
        generation: the current one: the lease is renewed, and nobody is fenced.
        expires: seconds that the id lives at least without a message, 10 seconds to 366 days. It is rounded up by less
            than an eighth (see ProducerLease.expires_in), and the id may live a quarter of that longer, and
            in periods of quarter seconds: 10 seconds may be 15, a day 32 hours. None: seven days; a renewal keeps what
            it has.
    """

    topic: str
    producer_id: int | None = None
    generation: int | None = None
    expires: float | None = None

    def __post_init__(self) -> None:
        """Raises InvalidArgument, InvalidName."""
        parse_topic(self.topic)
        if self.producer_id is not None:
            integer("producer_id", self.producer_id, 1, PRODUCER_ID_MAX)
        if self.generation is not None:
            integer("generation", self.generation, 1, GENERATION_MAX)
            if self.producer_id is None:
                raise InvalidArgument("a new producer has no generation: give its producer_id", field="generation")
        if self.expires is not None:
            check_type("expires", self.expires, (int, float), "a number of seconds")
            if not LEASE_MS_MIN <= self.expires * 1000 <= LEASE_MS_MAX:
                limits = f"{LEASE_MS_MIN // 1000} to {LEASE_MS_MAX // 1000}"
                raise InvalidArgument(f"expires is {limits} seconds", field="expires", limit=LEASE_MS_MAX // 1000)


@dataclass(frozen=True, slots=True)
class ProducerLease:
    """A lease, for `create_producer(topic, lease=...)`.

    Save producer_id, and lease it again when the program starts: the answer's last_sequence_id is what is stored by
    then, and new messages go behind it.

    A lease that was saved with its last_sequence_id is for a program that saved its own position at the same moment.
    It sends everything behind that position again: the same bytes in the same order. What is stored by now is a
    duplicate, so it resumes exactly. Never send new messages under a saved lease: those whose ids are stored by now are
    not stored. They fail with ContentDiffers where the log can compare them. Where it cannot, as with `compression` and
    `chunking`, they are called duplicates. `create_producer` logs a warning, and `producer.repeats_ahead` says how many
    ids that concerns. To send new messages, renew the lease first (`LeaseWanted(topic, producer_id, generation)`) and
    use the answer.

    Attributes:
        topic: tenant/namespace/name.
        producer_id, generation: the proof of who holds it.
        last_sequence_id: the highest one that is stored; -1: none. The next message gets the one behind it.
        producer_name: what readers see.
        expires_in: seconds that the id lives at least, from the answer on, and from each message and renewal.
    """

    topic: str
    producer_id: int
    generation: int
    last_sequence_id: int
    producer_name: str = ""
    expires_in: float = 0.0

    def __post_init__(self) -> None:
        """Raises InvalidArgument, InvalidName."""
        parse_topic(self.topic)
        integer("producer_id", self.producer_id, 1, PRODUCER_ID_MAX)
        integer("generation", self.generation, 1, GENERATION_MAX)
        integer("last_sequence_id", self.last_sequence_id, -1, SEQUENCE_ID_MAX - 1)

    @property
    def instance(self) -> ProducerInstance:
        return ProducerInstance(ProducerId(self.producer_id), Generation(self.generation))


def leased(settings: ProducerSettings, lease: ProducerLease, topic: TopicName) -> ProducerSettings:
    """The settings of a producer that publishes under a lease. Raises InvalidArgument."""
    check_type("lease", lease, ProducerLease, "a ProducerLease")
    if parse_topic(lease.topic) != topic:
        raise InvalidArgument(f"the lease is of topic {lease.topic}, and not of {topic}", field="lease")
    if settings.name is not None or settings.initial_sequence_id is not None:
        raise InvalidArgument("a lease has its own name and last sequence id: give neither", field="lease")
    return replace(
        settings,
        mode=SequenceMode.CONTIGUOUS,
        initial_sequence_id=lease.last_sequence_id,
        lease=lease.instance,
    )


async def lease_all(
    network: Network, wanted: Sequence[LeaseWanted], timeout_ms: int | None
) -> list[ProducerLease | OncelogError]:
    """As `AsyncClient.lease_producer_ids`."""
    if len(wanted) > LEASES_MAX:
        raise InvalidArgument(f"{len(wanted)} leases in one call", field="wanted", limit=LEASES_MAX)
    for each in wanted:
        check_type("wanted", each, LeaseWanted, "a sequence of LeaseWanted")

    of_topic: dict[TopicName, dict[int, LeaseWanted]] = {}
    for place, each in enumerate(wanted):
        of_topic.setdefault(parse_topic(each.topic), {})[place] = each
    found = await asyncio.gather(
        *(_lease(network, topic, list(leases.values()), timeout_ms) for topic, leases in of_topic.items())
    )
    places = [place for leases in of_topic.values() for place in leases]
    results = dict(zip(places, chain.from_iterable(found), strict=True))
    return [results[place] for place in range(len(wanted))]


async def _lease(
    network: Network, topic: TopicName, wanted: Sequence[LeaseWanted], timeout_ms: int | None
) -> list[ProducerLease | OncelogError]:
    calls = LeaseCalls(
        [
            WantedLease(
                each.producer_id or 0, each.generation or 0, int((each.expires or 0) * 1000),
                secrets.token_bytes(INSTANCE_ID_BYTES),
            )
            for each in wanted
        ]
    )  # fmt: skip

    async def ask(again: bool) -> None:
        route = await network.route(topic, fresh=again)
        call = partial(network.ask_owner, route, LEASE_PRODUCER_ID)
        epoch = network.epochs.highest(route.topic_id)
        missing = await calls.ask(call, topic, route.topic_id, owner_epoch_seen=epoch)
        if missing is not None:
            raise missing

    error: OncelogError | None = None
    try:
        await persist(ask, timeout_ms=timeout_ms, what=f"a lease for {topic}")
    except DeadlineExceeded as late:
        cause = late.__cause__ if isinstance(late.__cause__, OncelogError) else late
        error = unanswered(topic, timeout_ms or 0, _LATE_ADVICE, cause)
    except OncelogError as other:
        error = other
    return [
        each if isinstance(each, OncelogError)
        else ProducerLease(
            str(topic), each.producer_id, each.generation, each.last_sequence_id, each.producer_name,
            each.expires_in_ms / 1000,
        )
        for each in calls.results(error)
    ]  # fmt: skip
