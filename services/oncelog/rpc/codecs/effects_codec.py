"""Requests and answers of the consume stream about the effects of a subscription's messages.

consumer.proto describes the fields.
"""

import re
from typing import assert_never

from oncelog.core.delivery.store_binding.events import (
    AnswerEffects,
    BindRequested,
    DeadLetterRequested,
    EffectsAsked,
    EffectsRequest,
    RewindRequested,
    SubscriptionEffects,
)
from oncelog.core.errors import InvalidArgument
from oncelog.core.ids import ConsumerNumber, Generation, SeekEpoch, SubscriptionNumber
from oncelog.rpc.packed_ranges import pack_ranges, unpack_ranges
from oncelog.wire import consumer_pb2 as pb

_STORE_ID = re.compile("[0-9a-f]{32}")


def check_store_id(store_id: str, *, empty: bool = True) -> None:
    """32 hexadecimal digits; or empty, if that is allowed. Raises InvalidArgument."""
    if (store_id or not empty) and not _STORE_ID.fullmatch(store_id):
        raise InvalidArgument("a store id has 32 hexadecimal digits", field="store_id", limit=32)


def effects_request_to_wire(request: EffectsRequest, out: pb.ConsumerRequest) -> None:
    match request:
        case EffectsAsked():
            ask = out.ask_effects
            ask.consumer, ask.request, ask.from_index = request.consumer, request.request, request.from_index
        case BindRequested():
            bind = out.bind_effects
            bind.consumer, bind.request, bind.seek_epoch = request.consumer, request.request, request.seek_epoch
            bind.generation, bind.forgotten_below = request.generation, request.forgotten_below
        case RewindRequested():
            rewind = out.rewind
            rewind.consumer, rewind.request, rewind.seek_epoch = request.consumer, request.request, request.seek_epoch
            rewind.generation = request.generation
            rewind.ranges.extend(pack_ranges(request.ranges))
        case DeadLetterRequested():
            letter = out.dead_letter
            letter.consumer, letter.request, letter.seek_epoch = request.consumer, request.request, request.seek_epoch
            letter.generation, letter.index, letter.reason = request.generation, request.index, request.reason
        case _:
            assert_never(request)


def effects_request_from_wire(request: pb.ConsumerRequest) -> EffectsRequest:
    """Of a request that is about effects. Raises InvalidArgument."""
    if request.HasField("ask_effects"):
        ask = request.ask_effects
        return EffectsAsked(ConsumerNumber(ask.consumer), ask.request, ask.from_index)
    if request.HasField("bind_effects"):
        bind = request.bind_effects
        return BindRequested(
            ConsumerNumber(bind.consumer), bind.request, SeekEpoch(bind.seek_epoch), Generation(bind.generation),
            bind.forgotten_below,
        )  # fmt: skip
    if request.HasField("dead_letter"):
        letter = request.dead_letter
        return DeadLetterRequested(
            ConsumerNumber(letter.consumer), letter.request, SeekEpoch(letter.seek_epoch),
            Generation(letter.generation), letter.index, letter.reason,
        )  # fmt: skip
    rewind = request.rewind
    return RewindRequested(
        ConsumerNumber(rewind.consumer), rewind.request, SeekEpoch(rewind.seek_epoch), Generation(rewind.generation),
        unpack_ranges(rewind.ranges, field="ranges"),
    )  # fmt: skip


def effects_to_wire(answer: AnswerEffects, out: pb.SubscriptionEffects) -> None:
    effects = answer.effects
    out.consumer, out.request, out.subscription_number = answer.consumer, answer.request, effects.number
    out.store_id, out.effect, out.seek_epoch = effects.store_id, effects.effect, effects.seek_epoch
    out.redo_epoch, out.redo_index, out.generation = effects.redo_epoch, effects.redo_index, effects.generation
    out.mark_delete, out.first_index, out.next_index = effects.mark_delete, effects.first_index, effects.next_index
    out.known_from, out.forgotten_below = effects.known_from, effects.forgotten_below
    out.consumed.extend(pack_ranges(effects.consumed))
    out.complete = effects.complete


def effects_from_wire(wire: pb.SubscriptionEffects) -> AnswerEffects:
    """Raises InvalidArgument."""
    effects = SubscriptionEffects(
        number=SubscriptionNumber(wire.subscription_number),
        store_id=wire.store_id,
        effect=wire.effect,
        seek_epoch=SeekEpoch(wire.seek_epoch),
        redo_epoch=SeekEpoch(wire.redo_epoch),
        redo_index=wire.redo_index,
        generation=Generation(wire.generation),
        mark_delete=wire.mark_delete,
        first_index=wire.first_index,
        next_index=wire.next_index,
        known_from=wire.known_from,
        forgotten_below=wire.forgotten_below,
        consumed=unpack_ranges(wire.consumed, field="consumed"),
        complete=wire.complete,
    )
    return AnswerEffects(ConsumerNumber(wire.consumer), wire.request, effects)
