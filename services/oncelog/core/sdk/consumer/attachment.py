"""What an owner has told a consumer about its subscription, and the request that a consumer sends to an owner."""

from dataclasses import dataclass

from oncelog.core.acks.changes import IndexRange
from oncelog.core.delivery.events import ConsumerOpening, HeldMessages
from oncelog.core.ids import ConsumerNumber, Generation, InstanceId, OwnerEpoch, SeekEpoch, SubscriptionNumber
from oncelog.core.sdk.consumer.events import ConsumerSettings


@dataclass(slots=True)
class Attachment:
    """From the answer to the first opening on. consumer None: not attached now."""

    subscription_id: str
    number: SubscriptionNumber
    seek_epoch: SeekEpoch
    generation: Generation
    consumer: ConsumerNumber | None
    #: frames of lower generations are dropped; above the own generation since another consumer is active
    generation_floor: Generation = Generation(0)

    def presents(
        self, held: tuple[IndexRange, ...], begun: tuple[IndexRange, ...], delivery_counts: dict[int, int]
    ) -> HeldMessages:
        return HeldMessages(self.subscription_id, self.seek_epoch, self.generation, held, begun, delivery_counts)


def opening_request(
    settings: ConsumerSettings,
    instance_id: InstanceId,
    attempt: int,
    owner_epoch_seen: OwnerEpoch,
    resume: HeldMessages | None,
) -> ConsumerOpening:
    """resume None: the first opening, which may create the subscription. A reconnection never does (hazard
    recreated-subscription)."""
    return ConsumerOpening(
        attempt,
        settings.subscription,
        settings.type,
        settings.consumer_name,
        instance_id,
        first_index=settings.first_index if resume is None else None,
        resume=resume,
        priority=settings.priority,
        max_deliveries=settings.max_deliveries,
        dead_letter_topic=settings.dead_letter_topic,
        ack_timeout_ms=settings.ack_timeout_ms,
        owner_epoch_seen=owner_epoch_seen,
        properties=settings.properties,
        store_id=settings.store_id,
        effect=settings.effect,
        whole_entries=settings.whole_entries,
    )
