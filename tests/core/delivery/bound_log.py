"""What the log knows of a subscription whose messages take effect in a store."""

from oncelog.core.acks.changes import IndexRange
from oncelog.core.delivery.store_binding.events import SubscriptionEffects
from oncelog.core.ids import Generation, SeekEpoch, SubscriptionNumber

STORE = "5a" * 16
#: Subscription 2, generation 3, 40 of 100 messages acknowledged, all by consumers.
LOG = SubscriptionEffects(
    number=SubscriptionNumber(2), store_id=STORE, effect="invoices", seek_epoch=SeekEpoch(0), redo_epoch=SeekEpoch(0),
    redo_index=0, generation=Generation(3), mark_delete=40, first_index=10, next_index=100, known_from=0,
    forgotten_below=0, consumed=(IndexRange(0, 39),), complete=True,
)  # fmt: skip
