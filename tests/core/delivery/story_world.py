"""The commands of stories about a topic's subscriptions (tests/stories/story.py), and what happens, in words.

    store 2 | store keys=a,b            an entry of messages is durable
    subscribe NAME [TYPE] [window=]     a consumer asks to attach; other settings are those of `World.subscribe`
    return NAME [held= begun= count=]   it comes back on a new stream, with messages that it still has
    flow NAME WINDOW [handed_out=]      it reports its credit
    receive NAME 0-2                    it reports that its application has received these messages, and no others
    ack | nack NAME 0-2,5               it acknowledges, also `below=`; it rejects
    lose | close NAME                   its stream breaks; it leaves
    wait MS                             time passes
    write [COUNT] | fail                what was appended to the ack log is durable, or the first changes; is dropped
    takeover                            another owner begins with what is durable

The docstrings of the methods `do_…` say what the others do. Requests write what they append, unless they end with
`unwritten`. Words after `gets`: the messages of a delivery; `3 (2nd)`: the second one of message 3.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, TypeAlias, assert_never

from oncelog.core.acks.changes import EvictionReason, IndexRange, SubscriptionType
from oncelog.core.delivery.events import (
    AnswerAck,
    AnswerAdmin,
    AnswerSeek,
    AnswerSubscribe,
    ConsumerActive,
    ConsumerEffect,
    ConsumerHeld,
    ConsumerOpeningAbandoned,
    ConsumerWanted,
    CreateRequested,
    DeadLetterStored,
    DeadLetterTopicReplaced,
    DeadLetterTopicResolved,
    DeleteRequested,
    DeliverMessages,
    EndConsumer,
    MessagesEvicted,
    PropertiesRequested,
    PublishDeadLetter,
    ReadMessages,
    RecallMessages,
    ResolveDeadLetterTopic,
    SkipRequested,
    Subscribed,
    SubscriptionSought,
)
from oncelog.core.delivery.group_offsets.events import (
    GenerationRaiseRequested,
    OffsetAsked,
    OffsetCommitRequested,
)
from oncelog.core.delivery.limits import NO_LIMITS
from oncelog.core.delivery.store_binding.events import (
    AnswerEffects,
    BindRequested,
    DeadLetterRequested,
    EffectsAsked,
    RebindRequested,
    RewindRequested,
)
from oncelog.core.errors import NotOwner, OncelogError
from oncelog.core.ids import ConsumerNumber, Generation, SeekEpoch, TopicId
from tests.core.delivery.subscription_world import Client, RangeLimit, World, ranges
from tests.stories.story import Command

_TYPES = {each.name.lower(): each for each in SubscriptionType}
_ORDINALS = {1: "", 2: " (2nd)", 3: " (3rd)"}
#: Messages, and which delivery of each.
_Delivered: TypeAlias = list[tuple[int, int]]


class StoryWorld(World):
    def __init__(self) -> None:
        super().__init__()
        #: {name of a consumer: its latest attachment, or request for one}
        self.named: dict[str, Client] = {}
        self.names: dict[ConsumerNumber, str] = {}
        #: (of whom, what), since the last block
        self.happened: list[tuple[str, str | _Delivered]] = []

    def play(self, commands: Sequence[Command]) -> list[str]:
        for command in commands:
            words = [word for word in command.words if word != "unwritten"]
            given = {name: _value(text) for name, text in command.values.items()}
            if "unwritten" in command.words:
                given["written"] = False
            getattr(self, f"do_{command.name}")(*words, **given)
        if self.chain:
            self.happened.append(("unwritten", ", ".join(type(change).__name__ for change, _ in self.chain)))
        happened, self.happened = self.happened, []
        return [
            f"{who}: {'; '.join(_said(what for _, what in same))}" for who, same in groupby(happened, lambda it: it[0])
        ]

    # --- commands -----------------------------------------------------------------------------------------------------

    do_fail = World.fail

    def do_write(self, count: str = "0") -> None:
        self.write(int(count))

    def do_store(self, count: str = "", keys: str = "") -> None:
        given = [None if key == "-" else key for key in keys.split(",")]
        self.store(int(count or len(given)), given if keys else None)

    def do_given_up(self, count: str) -> None:
        """The next numbers are of a lost ledger that was given up."""
        self.log.next_index += int(count)

    def do_subscribe(self, name: str, type_: str = "exclusive", store: str = "", **settings: Any) -> None:
        """store: has the effects of the messages; without `effect=` they are called invoices there."""
        if store:
            settings = {"effect": "invoices", **settings, "store_id": store * 16}
        self._asked(name, self.subscribe(name, _TYPES[type_], **settings))

    def do_return(self, name: str, held: object = "", begun: object = "", count: int = 1, **given: Any) -> None:
        """count: of the deliveries that it holds."""
        indexes, counts = _indexes(held), _counts(_indexes(held), count)
        self._asked(name, self.reconnect(self.named[name], indexes, begun=_indexes(begun), counts=counts, **given))

    def _asked(self, name: str, client: Client) -> None:
        if name not in self.named or not isinstance(client.answer, OncelogError):
            self.named[name] = client

    def do_abandon(self, name: str) -> None:
        """The client withdraws its request to attach."""
        self.post(ConsumerOpeningAbandoned(self.named[name].opening.call))

    def do_flow(self, name: str, window: str, begun: object = "", **given: Any) -> None:
        self.flow(self.named[name], int(window), begun=_indexes(begun), **given)

    def do_receive(self, name: str, indexes: str = "", window: int = 0) -> None:
        self.receive(self.named[name], *_indexes(indexes), window=window)

    def do_lose(self, name: str) -> None:
        self.detach(self.named[name])

    def do_close(self, name: str) -> None:
        self.detach(self.named[name], lost=False)

    def do_lives(self, name: str) -> None:
        """Its gateway says that the client is there."""
        self.post(ConsumerHeld(self.named[name].number))

    def do_ack(self, name: str, indexes: str = "", **given: Any) -> None:
        self.ack(self.named[name], *_indexes(indexes), **given)

    def do_nack(self, name: str, indexes: str, count: int | None = None, **given: Any) -> None:
        """count: which delivery is meant; without it: the newest one that the consumer has."""
        asked = _indexes(indexes)
        self.nack(self.named[name], *asked, counts=None if count is None else _counts(asked, count), **given)

    def do_seek(self, index: str, **given: Any) -> None:
        self.seek(int(index), **given)

    def do_commit(
        self,
        offset: str,
        generation: int | None = None,
        metadata: str = "",
        subscription: str = "s",
        written: bool = True,
    ) -> None:
        """A group goes on at this offset; without a generation: of no member."""
        of = None if generation is None else Generation(generation)
        self.post(OffsetCommitRequested(1, subscription, int(offset), of, metadata))
        self._write_if(written)

    def do_raise(self, generation: str, create: str = "", subscription: str = "s", written: bool = True) -> None:
        """A coordinator raises the generation."""
        self.post(GenerationRaiseRequested(1, subscription, Generation(int(generation)), bool(create)))
        self._write_if(written)

    def do_ask_offset(self, subscription: str = "s") -> None:
        """A group asks for its offset."""
        self.post(OffsetAsked(1, subscription))

    def do_skip(self, count: str = "", below: int | None = None, written: bool = True) -> None:
        """An administrator skips so many messages, or all below an index."""
        self.post(SkipRequested(1, self.number, int(count) if count else None, below))
        self._write_if(written)

    def do_properties(self, name: str) -> None:
        """An administrator sets a property."""
        self.post(PropertiesRequested(1, self.number, ((name, ""),)))

    def do_create(self, subscription: str, first_index: str) -> None:
        """An administrator creates a subscription that begins at this index."""
        self.post(CreateRequested(1, subscription, int(first_index)))

    def do_delete(self, force: str = "", generation: int | None = None, unused: int = 0, written: bool = True) -> None:
        """unused: for so many ms."""
        of = None if generation is None else Generation(generation)
        self.post(DeleteRequested(1, "s", bool(force), of, unused))
        self._write_if(written)

    def do_evict(self, indexes: str, reason: str) -> None:
        self.topic.evict(self.number, ranges(*_indexes(indexes)), EvictionReason[reason.upper()])
        self.settle()

    def do_trim(self, when: str, index: str) -> None:
        """A trim to this index begins or ends."""
        (self.topic.trim_began if when == "begins" else self.topic.trim_ended)(int(index))
        self.settle()

    def do_room(self, has_room: str) -> None:
        """Whether the ack log takes more: yes or no."""
        self.has_room = has_room == "yes"

    def do_limit(self, word: str = "", ranges: int = 1) -> None:
        """New messages are withheld above so many acknowledged ranges; `full`: at the hard limit; `off`: no limit."""
        self.ack_limit = NO_LIMITS if word == "off" else RangeLimit(ranges, full=word == "full")
        self.topic.set_ack_state_limit(self.ack_limit)
        self.settle()

    def do_resolve(self, topic: str = "") -> None:
        """The dead-letter topic that was asked for is found; without a name: it is not."""
        for asked in self.other(ResolveDeadLetterTopic):
            self.post(DeadLetterTopicResolved(asked.number, asked.topic, _topic(topic) if topic else None))

    def do_stored(self, topic: str, sequence: str) -> None:
        """The dead-letter topic has the letters up to this number."""
        self.post(DeadLetterStored(self.number, _topic(topic), int(sequence)))

    def do_replaced(self, topic: str, new_topic: str) -> None:
        """The dead-letter topic was deleted and created again."""
        self.post(DeadLetterTopicReplaced(self.number, _topic(topic), _topic(new_topic)))
        self.write()

    def do_bind(self, name: str, forgotten_below: int = 0, generation: int | None = None, written: bool = True) -> None:
        """The effects are in the store that the consumer named when it attached."""
        self.post(BindRequested(*self._request(name, None, generation), forgotten_below))
        self._write_if(written)

    def do_rewind(self, name: str, indexes: str = "", epoch: int | None = None, written: bool = True) -> None:
        """The store has lost the effects of these messages."""
        self.post(RewindRequested(*self._request(name, epoch), ranges(*_indexes(indexes))))
        self._write_if(written)

    def do_give_up(self, name: str, index: str, epoch: int | None = None, generation: int | None = None) -> None:
        """The store asks for a dead letter."""
        self.post(DeadLetterRequested(*self._request(name, epoch, generation), int(index), "no total"))

    def _request(
        self, name: str, epoch: int | None, generation: int | None = None
    ) -> tuple[ConsumerNumber, int, SeekEpoch, Generation]:
        client = self.named[name]
        given = client.generation if generation is None else generation
        return client.number, 1, SeekEpoch(client.seek_epoch if epoch is None else epoch), Generation(given)

    def do_rebind(self, store: str, written: bool = True) -> None:
        """An administrator says that another store has the effects from now on."""
        self.post(RebindRequested(1, self.number, store * 16))
        self._write_if(written)

    def do_ask(self, name: str, from_index: str = "0") -> None:
        """What the log knows of the effects, from this message on."""
        self.post(EffectsAsked(self.named[name].number, 1, int(from_index)))

    def _write_if(self, written: bool) -> None:
        if written:
            self.write()

    def do_wait(self, ms: str) -> None:
        self.pass_time(int(ms))

    def do_clock(self, ms: str) -> None:
        """The clock of the owner jumps."""
        self.step.now_ms += int(ms)

    def do_takeover(self, ranges: int | None = None) -> None:
        """ranges: the next owner limits the acknowledged ranges; -1: it withholds all new messages."""
        self.ack_limit = self.ack_limit if ranges is None else RangeLimit(ranges)
        self.take_over()

    def do_drain(self) -> None:
        """The owner gives the topic away: it answers what is in flight, and takes nothing more."""
        self.topic.drain()

    def do_end(self) -> None:
        """The owner loses the topic."""
        self.topic.end(NotOwner("the topic has another owner"))
        self.settle()

    def do_state(self) -> None:
        """Say what is durable: acknowledged messages, and those whose deliveries are counted."""
        state = self.state.subscriptions[self.number]
        for what, indexes in (("acknowledged", self.acked()), ("counted", sorted(state.redeliveries))):
            self.happened.append(("state", f"{what} {_words([(index, 1) for index in indexes]) or 'nothing'}"))
        if state.committed is not None:
            position, metadata, time_ms = state.committed
            self.happened.append(("state", f"committed {position} at {time_ms} ms {metadata}".rstrip()))

    def do_withheld(self) -> None:
        """Say why new messages are withheld."""
        why = self.subscription.blocked()
        said = f"by {why.reason}, lowest hole {why.lowest_hole} with {why.holder}" if why else "nothing"
        self.happened.append(("withheld", said))

    def do_steps_back(self) -> None:
        """Say to which message the steps back in flight go."""
        index = self.topic.steps_back_to()
        self.happened.append(("steps back", "none" if index is None else f"to {index}"))

    # --- effects ------------------------------------------------------------------------------------------------------

    def _perform(self, effect: ConsumerEffect) -> None:
        super()._perform(effect)
        if isinstance(effect, AnswerSubscribe) and isinstance(effect.result, Subscribed):
            self.names[effect.result.consumer] = self.openings[effect.call].opening.consumer_name
        if not isinstance(effect, ReadMessages):
            self.happened.append(self._in_words(effect))

    def _in_words(self, effect: ConsumerEffect) -> tuple[str, str | _Delivered]:
        match effect:
            case AnswerSubscribe(call, Subscribed() as attached):
                created = f" to new subscription {attached.number}" if attached.created else ""
                generation = f", generation {attached.generation}" if attached.generation else ""
                kept = f", keeps {_spans(attached.kept)}" if attached.kept else ""
                return self.openings[call].opening.consumer_name, f"attached{created}{generation}{kept}"
            case AnswerSubscribe(call, error):
                return self.openings[call].opening.consumer_name, f"refused, {type(error).__name__}"
            case DeliverMessages(consumer):
                spans = [span for each in effect.entries for span in each.ranges]
                indexes = [index for first, last in spans for index in range(first, last + 1)]
                return self.names[consumer], [(index, effect.delivery_counts.get(index, 1)) for index in indexes]
            case AnswerAck(consumer, _, None):
                below = f", all below {effect.acked_below}" if effect.acked_below else ""
                return self.names[consumer], f"answered{below}{'' if effect.durable else ', in memory only'}"
            case AnswerAck(consumer, _, error):
                return self.names[consumer], f"answered, {type(error).__name__}"
            case RecallMessages(consumer, recalled):
                return self.names[consumer], f"recall of {_spans(recalled)}"
            case ConsumerActive(consumer, generation):
                return self.names[consumer], f"active, generation {generation}" if generation else "not active"
            case ConsumerWanted(consumer):
                return self.names[consumer], "is wanted"
            case SubscriptionSought(consumer, seek_epoch):
                return self.names[consumer], f"begins again, epoch {seek_epoch}"
            case EndConsumer(consumer, error):
                return self.names[consumer], f"ended, {type(error).__name__}"
            case AnswerSeek(_, result):
                return "seek", "done" if isinstance(result, int) else f"not done, {type(result).__name__}"
            case AnswerAdmin(_, error, generation):
                done = f"done, generation {generation}" if generation else "done"
                return "request", f"not done, {type(error).__name__}" if error else done
            case MessagesEvicted(reason, count):
                return "evicted", f"{count} by {reason.name}"
            case ResolveDeadLetterTopic(_, topic):
                return "dead letters", f"which topic is {topic}?"
            case PublishDeadLetter(_, index, topic_id, sequence, reason):
                because = f", {reason}" if reason else ""
                return "dead letters", f"{index} goes to {topic_id[:2]} as number {sequence}{because}"
            case AnswerEffects(consumer, _, known):
                store = f"{known.store_id[:2]} has {known.effect}" if known.store_id else "no store"
                of = f"{known.first_index}-{known.next_index - 1}, all below {known.mark_delete}"
                since = f", known from {known.known_from}, forgotten below {known.forgotten_below}"
                consumed = f"consumed {_spans(known.consumed) or 'nothing'} of {of}{since if known.known_from else ''}"
                return self.names[consumer], f"{store}, generation {known.generation}, {consumed}"
            case ReadMessages():
                raise AssertionError("a read is answered and has no words")
            case _:
                assert_never(effect)


def _said(parts: Iterable[str | _Delivered]) -> Iterator[str]:
    """Deliveries that follow each other are one."""
    for _, same in groupby(parts, type):
        run = list(same)
        delivered = [each for part in run if not isinstance(part, str) for each in part]
        yield from [f"gets {_words(delivered)}"] if delivered else [part for part in run if isinstance(part, str)]


def _words(delivered: _Delivered) -> str:
    runs = groupby(enumerate(delivered), lambda each: (each[1][0] - each[0], each[1][1]))
    found = [(count, [index for _, (index, _) in run]) for (_, count), run in runs]
    return ", ".join(f"{_span(run[0], run[-1])}{_ORDINALS.get(count, f' ({count}th)')}" for count, run in found)


def _spans(spans: Iterable[IndexRange]) -> str:
    return ", ".join(_span(first, last) for first, last in spans)


def _span(first: int, last: int) -> str:
    return f"{first}-{last}" if last > first else str(first)


def _indexes(text: object) -> list[int]:
    """The messages of `0-2,5`."""
    parts = [part.partition("-") for part in str(text).split(",") if part]
    return [index for first, _, last in parts for index in range(int(first), int(last or first) + 1)]


def _counts(indexes: Sequence[int], count: int) -> dict[int, int]:
    """As the wire has them: of those above 1."""
    return {index: count for index in indexes if count > 1}


def _value(text: str) -> int | str | None:
    return None if text == "none" else int(text) if re.fullmatch(r"-?[0-9_]+", text) else text


def _topic(text: str) -> TopicId:
    return TopicId(text * 16)
