"""A digest of the durable state of one subscription: two folds of the same ack log have the same one."""

from hashlib import sha256
from struct import Struct

from oncelog.core.acks.ack_state import SubscriptionState

_BLOCK = Struct("<QBI")


def state_digest(state: SubscriptionState) -> str:
    """32 hexadecimal digits over everything that a snapshot holds of the subscription. The cost depends on the bytes of
    the state, not on the number of messages. Equal sets have equal blocks: each is in its smallest form."""
    fields = (
        state.number, state.subscription_id, state.name, int(state.type), state.role, state.properties,
        state.seek_epoch, state.redo_epoch, state.generation, state.active_consumer, state.acks.mark_delete,
        sorted(state.dead_letter_next.items()),
        sorted((index, tuple(place)) for index, place in state.dead_letters.items()),
        [tuple(state.redeliveries[index]) for index in sorted(state.redeliveries)],
    )  # fmt: skip
    digest = sha256(repr(fields).encode())
    sets = [state.acks]
    if state.binding is not None or state.redo_epoch:
        digest.update(repr((state.redo_index, state.binding)).encode())
    if state.committed is not None:
        digest.update(repr(tuple(state.committed)).encode())
    if state.binding is not None:
        sets.append(state.binding.consumed.set)
    for acks in sets:
        for block in acks.blocks(changed=False):
            digest.update(_BLOCK.pack(block.number, block.form, len(block.data)) + block.data)
    return digest.hexdigest()[:32]
