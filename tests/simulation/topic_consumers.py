"""Consumers in the whole cluster: real takeovers, ack logs and storage nodes behind the cores of subscriptions.

Entries of messages are read without faults, as readers and takeovers read them under faults.
"""

from collections.abc import Container, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from oncelog.core.acks.ack_state import SubscriptionsState
from oncelog.core.acks.changes import SubscriptionType
from oncelog.core.delivery.events import (
    AnswerAdmin,
    AnswerSeek,
    AnswerSubscribe,
    ConsumerDetached,
    ConsumerEffect,
    ConsumerOpening,
    ConsumerOpeningAbandoned,
    MessagesEvicted,
    MessagesRead,
    PublishDeadLetter,
    ReadMessages,
    ResolveDeadLetterTopic,
    StoredEntry,
    Subscribed,
)
from oncelog.core.delivery.limits import NO_LIMITS, AckStateCheck
from oncelog.core.errors import CorruptEntry, NotOwner
from oncelog.core.formats.entry import EntryKind, decode_entry
from oncelog.core.ids import ConsumerNumber, EntryId, LedgerId, OwnerEpoch, TopicId
from oncelog.core.ledger.metadata import decode_ledger
from oncelog.core.sdk.consumer.events import ConsumerSettings, OwnerReport, OwnerRequest
from oncelog.verify.violation import Violation
from tests.oracles.consumption import ConsumptionHistory
from tests.simulation.consuming.chain import MessageLog, TopicRecord
from tests.simulation.consuming.client import ConsumerClient, Habits
from tests.simulation.consuming.outboxes import ConsumerStream
from tests.simulation.ledger_lists import ids_known_to
from tests.simulation.network import Network
from tests.simulation.world import Process, World

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster
    from tests.simulation.owner_server import OwnerServer
    from tests.simulation.topic_shell import TopicShell

#: entries of one read
READ_ENTRIES = 5


class ShellConsumers:
    """The streams of consumers of one topic at one owner: performs what the core's subscriptions ask for."""

    def __init__(self, shell: "TopicShell") -> None:
        self._shell = shell
        self._calls = 0
        #: {call: (stream, the client's call)}
        self._asked: dict[int, tuple[ConsumerStream, int]] = {}
        self._streams: dict[ConsumerNumber, ConsumerStream] = {}
        #: confirmed entries of messages, ascending; {ledger: entries looked at}; ledgers without further entries
        self._entries: list[StoredEntry] = []
        self._looked_at: dict[LedgerId, int] = {}
        self._ended: dict[LedgerId, None] = {}

    def request(self, stream: ConsumerStream, request: OwnerRequest) -> None:
        if isinstance(request, ConsumerOpening):
            self._calls += 1
            self._asked[self._calls] = (stream, request.call)
            stream.call, request = self._calls, replace(request, call=self._calls)
        self._shell.handle(request)

    def stream_broken(self, stream: ConsumerStream) -> None:
        if self._asked.pop(stream.call, None) is not None:
            self._shell.handle(ConsumerOpeningAbandoned(stream.call))
        for consumer in [each for each in stream.consumers if self._streams.pop(each, None) is not None]:
            if self._shell.owner.alive:
                self._shell.handle(ConsumerDetached(consumer, lost=True))

    def perform(self, effect: ConsumerEffect) -> None:
        match effect:
            case ReadMessages():
                self._shell.owner.post(5, "messages read", lambda: self._read(effect))
            case AnswerSubscribe(call, result):
                stream, asked = self._asked.pop(call, (None, 0))
                if stream is not None:
                    if isinstance(result, Subscribed):
                        self._streams[result.consumer] = stream
                        stream.consumers.append(result.consumer)
                    self._report(stream, AnswerSubscribe(asked, result))
            case AnswerSeek() | AnswerAdmin() | MessagesEvicted() | ResolveDeadLetterTopic() | PublishDeadLetter():
                raise AssertionError(f"no consumer asks for {effect}")
            case _:
                target = self._streams.get(effect.consumer)
                if target is not None:
                    self._report(target, effect)

    def _report(self, stream: ConsumerStream, report: OwnerReport) -> None:
        owner, epoch = self._shell.owner, self._shell.epoch
        if isinstance(report, AnswerSubscribe) and isinstance(report.result, NotOwner):
            epoch = OwnerEpoch(0)
        moment = owner.world.steps
        stream.stream.send(owner, type(report).__name__, lambda: stream.reported(epoch, report, moment))

    # --- reading ------------------------------------------------------------------------------------------------------

    def _read(self, effect: ReadMessages) -> None:
        if self._shell.core.serving is None:
            return
        self._look_for_entries()
        behind = (e for e in self._entries if e.base_index + e.count > effect.first_index)
        entries = tuple(entry for entry, _ in zip(behind, range(READ_ENTRIES), strict=False))
        self._shell.handle(MessagesRead(effect.number, effect.first_index, entries))

    def _look_for_entries(self) -> None:
        store, confirmed = self._shell.owner.parts.store, self._shell.confirmed
        for ledger_id in ids_known_to(store, self._shell.core.ownership.record):
            if ledger_id in self._ended or ledger_id > confirmed.ledger_id:
                continue
            end = confirmed.entry_id
            if ledger_id < confirmed.ledger_id:
                # What was added behind the end of a CLOSED ledger is no part of the log: it is in a later ledger, too.
                data, _ = store.get(f"ledgers/{ledger_id}")
                end = EntryId(-1) if data is None else decode_ledger(data).end
            held = self._held(ledger_id)
            number = self._looked_at.get(ledger_id, 0)
            while number in held and number <= end:
                entry = held[EntryId(number)]
                if entry is not None:
                    self._entries.append(entry)
                number += 1
            self._looked_at[ledger_id] = number
            if ledger_id < confirmed.ledger_id:
                self._ended[ledger_id] = None

    def _held(self, ledger_id: LedgerId) -> dict[EntryId, StoredEntry | None]:
        """{entry: its messages, if it has any} of all durable and sound copies."""
        parts, found = self._shell.owner.parts, dict[EntryId, StoredEntry | None]()
        for disk in (disk for server in parts.nodes.values() for disk in server.disks.values()):
            for entry_id, data in disk.ever_held(ledger_id).items():
                if entry_id in found:
                    continue
                try:
                    header = decode_entry(data, ledger_id=ledger_id, entry_id=entry_id, checksum=parts.checksum)
                except CorruptEntry:
                    continue
                stored = StoredEntry(header.position, header.base_index, header.count, header.skip_first, data)
                found[entry_id] = stored if header.kind == EntryKind.MESSAGES and header.count else None
        return found


class OwnerGate:
    """One topic at the process of an owner, whether or not that process serves the topic."""

    def __init__(self, owner: "OwnerServer", topic_id: TopicId) -> None:
        self.process: Process = owner
        self._owner = owner
        self._topic_id = topic_id

    def request(self, stream: ConsumerStream, request: OwnerRequest) -> None:
        if stream.stream not in self._owner.streams:
            self._owner.streams.append(stream.stream)
        shell = self._owner.topics.get(self._topic_id)
        if shell is not None:
            shell.consumers.request(stream, request)
        elif isinstance(request, ConsumerOpening):
            refused = AnswerSubscribe(request.call, NotOwner("this process does not serve the topic"))
            moment = self._owner.world.steps
            stream.stream.send(self._owner, "refused", lambda: stream.reported(OwnerEpoch(0), refused, moment))

    def stream_broken(self, stream: ConsumerStream) -> None:
        if stream.stream in self._owner.streams:
            self._owner.streams.remove(stream.stream)
        shell = self._owner.topics.get(self._topic_id)
        if shell is not None:
            shell.consumers.stream_broken(stream)


@dataclass(slots=True)
class _Parts:
    """What a consumer knows of the cluster."""

    world: World
    network: Network
    cluster: "Cluster"
    topic_id: TopicId
    log: MessageLog
    ack_limit: AckStateCheck = NO_LIMITS

    @property
    def record(self) -> TopicRecord:
        record = self.cluster.watch.topics[self.topic_id].record
        return TopicRecord((record.owner or "").split(".")[0], record.owner_epoch)


class TopicConsumption:
    """An exclusive and a shared subscription of one topic, and the oracle of what their consumers see."""

    def __init__(self, cluster: "Cluster", topic_id: TopicId) -> None:
        rng = cluster.world.rng
        self._cluster = cluster
        self._topic_id = topic_id
        self.history = ConsumptionHistory()
        self.clients: list[ConsumerClient] = []
        parts = _Parts(cluster.world, cluster.network, cluster, topic_id, MessageLog())
        gates = {name: OwnerGate(owner, topic_id) for name, owner in cluster.owners.items()}
        for kind, count in ((SubscriptionType.EXCLUSIVE, 1), (SubscriptionType.SHARED, 2)):
            for number in range(count):
                settings = ConsumerSettings(
                    kind.name.lower(), kind, f"c{number}", first_index=0, receive_window=rng.choice((4, 20)),
                    ack_timeout_ms=rng.choice((0, 800)), answer_timeout_ms=10_000,
                )  # fmt: skip
                name = f"{settings.subscription} consumer{int(topic_id, 16)}{number}"
                habits = Habits(nack=0.1, forget=0.02)
                self.clients.append(
                    ConsumerClient(
                        parts, name, settings, habits, history=self.history, owners=gates, stale=lambda: False
                    )
                )

    def heal(self) -> None:
        for client in self.clients:
            client.diligent = True

    @property
    def complete(self) -> bool:
        """Whether the present owner's durable state has every message of both subscriptions acknowledged."""
        epoch = self._cluster.watch.topics[self._topic_id].record.owner_epoch
        for owner in self._cluster.owners.values():
            shell = owner.topics.get(self._topic_id)
            serving = None if shell is None or shell.epoch != epoch else shell.core.serving
            if serving is not None:
                state, end = serving.acks.state, serving.log.table.state.next_index
                marks = [state.subscriptions[number].acks.mark_delete for number in state.names.values()]
                return len(marks) == 2 and all(mark == end for mark in marks)
        return False

    def ack_limit(self, fold: SubscriptionsState) -> None:
        """At the end. fold: of the whole ack log. Raises Violation."""
        for subscription in fold.subscriptions.values():
            for place, seen in self.history.places.items():
                if place.subscription_id != subscription.subscription_id:
                    continue
                end = subscription.acks.mark_delete
                _check_all("acks durable", seen.acknowledged, range(end))
                _check_all("everything is delivered", range(min(seen.received, default=0), end), seen.received)
                _check_all("delivered until acknowledged", range(min(seen.received, default=0), end), seen.asked)


def _check_all(rule: str, indexes: Iterable[int], present: Container[int]) -> None:
    missing = [index for index in indexes if index not in present]
    if missing:
        raise Violation(rule, f"messages {missing[:5]} are missing")
