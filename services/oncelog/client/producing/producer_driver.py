"""The shell of a producer's session."""

import secrets
from collections.abc import Callable

from crc32c import crc32c

from oncelog.client.network.network import Network
from oncelog.client.network.publish_stream import PublishStream
from oncelog.client.network.session_driver import SessionDriver
from oncelog.client.producing.duplicates import DuplicateRules
from oncelog.client.producing.pending_results import PendingResults
from oncelog.core.ids import INSTANCE_ID_BYTES, InstanceId
from oncelog.core.names import TopicName
from oncelog.core.sdk.owner_attempts import FailSession, LookUp, StartSessionTimer, TimerKey, TimerKind
from oncelog.core.sdk.producer.events import (
    ClientIsThere,
    Complete,
    Fail,
    HoldName,
    ProducerEffect,
    ProducerEvent,
    ReportOpen,
    ReportWanted,
)
from oncelog.core.sdk.producer.opening import CloseSession, OpenProducer, ProducerSettings, WithdrawOpening
from oncelog.core.sdk.producer.pending_batches import SendBatches
from oncelog.core.sdk.producer.session import ProducerSession
from oncelog.rpc.codecs.owner_codec import OpenRequest


class ProducerDriver(SessionDriver[ProducerEvent, ProducerEffect, PublishStream]):
    """One ProducerSession on the network."""

    core: ProducerSession

    def __init__(
        self,
        settings: ProducerSettings,
        topic: TopicName,
        network: Network,
        *,
        rules: DuplicateRules,
        changed: Callable[[], None],
    ) -> None:
        super().__init__(topic, network, network.publish_stream, changed=changed)
        # Random, because no other instance may have the same id, in this process or in a copy of its memory.
        instance_id = settings.instance_id or InstanceId(secrets.token_bytes(INSTANCE_ID_BYTES))
        self.core = ProducerSession(settings, crc32c, instance_id)
        self.results = PendingResults(str(topic), rules)
        #: {attempt: the open id of its request on its stream}, of the latest attempt only
        self._open_ids: dict[int, int] = {}
        #: called when another client wants the name of the gateway's client; the answer is ClientIsThere, or a close
        self.wanted: Callable[[], None] = lambda: self.feed(ClientIsThere())
        self._has_deadlines = settings.send_timeout_ms is not None

    @property
    def what(self) -> str:
        return f"producer {self.core.opening.name} on {self.topic}"

    def _perform(self, effects: list[ProducerEffect]) -> None:
        for effect in effects:
            match effect:
                case SendBatches():
                    self._streams[effect.attempt].send(effect.session, effect.batches)
                case Complete():
                    if self._has_deadlines:
                        self._timers.cancel(TimerKey(TimerKind.SEND, effect.request))
                    self.results.complete(effect, self.topic_partition, self.core.opening.name or "")
                case Fail():
                    if self._has_deadlines:
                        self._timers.cancel(TimerKey(TimerKind.SEND, effect.request))
                    self.results.fail(effect.request, effect.error.of_send(effect.stored))
                case ReportOpen() | FailSession():
                    pass  # `changed` follows, and the core has the producer's name and error
                case LookUp():
                    self._start_look_up(effect)
                case OpenProducer():
                    self._open(effect)
                case WithdrawOpening(attempt):
                    if (open_id := self._open_ids.pop(attempt, None)) is not None:
                        self._streams[attempt].withdraw(open_id)
                case CloseSession():
                    if (stream := self._streams.get(effect.attempt)) is not None:
                        stream.end_session(effect.session, keeps_name=effect.keeps_name)
                case ReportWanted():
                    self.wanted()
                case HoldName():
                    if (stream := self._streams.get(effect.attempt)) is not None:
                        stream.hold_name(effect.session)
                case StartSessionTimer():
                    self._timers.start(effect)

    def _open(self, effect: OpenProducer) -> None:
        request = OpenRequest(
            0,
            str(self.topic),
            self.topic_partition.topic_id,
            effect.name,
            effect.mode,
            effect.on_conflict,
            effect.resume,
            effect.present,
            effect.owner_epoch,
            effect.instance_id,
            effect.on_behalf_of,
            effect.growths,
            effect.initial_mark,
            effect.client,
        )
        self._open_ids = {effect.attempt: self._streams[effect.attempt].open(request, self.feed, effect.attempt)}
