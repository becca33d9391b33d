"""One connection of a client of Pulsar.

    new ──CONNECT──▶ connecting ──token valid──▶ open ──▶ closed
     │ 10 s, or anything else        │ ERROR
     └───────────────────────────────┴─────────▶ closed

Commands are handled in their order. The connection is held, and nothing is read, while its token is checked, while the
door keeps too much of what it sent (`send_budget`), and while the client does not read its answers. A client that
breaks the protocol is disconnected, with a log line.
"""

from collections.abc import Callable
from functools import partial

from oncelog.core.access import UNCHECKED, Caller
from oncelog.core.errors import InvalidArgument, OncelogError
from oncelog_doors.connections.connection import CONNECT_MS, ClientConnection
from oncelog_doors.connections.ports import ProvedCaller
from oncelog_doors.connections.received import Buffer
from oncelog_doors.core.pulsar.connecting import Admitted, Connect, admission, message_bytes_max, token_of
from oncelog_doors.core.pulsar.families import ClientFamily, family_of
from oncelog_doors.core.pulsar.liveness import Drop, Liveness, LivenessEffect, SayAlive, WritePing
from oncelog_doors.core.pulsar.names import producer_name_of, topic_of
from oncelog_doors.core.pulsar.openings import ProducerRequest
from oncelog_doors.core.pulsar.send_budget import BudgetEffect, ProducerKey
from oncelog_doors.core.pulsar.server_errors import Refusal, ServerError, refusal_of
from oncelog_doors.core.shared.renewed_tokens import refusal_of_token
from oncelog_doors.pulsar import replies
from oncelog_doors.pulsar.commands import command
from oncelog_doors.pulsar.consumers import Consumers
from oncelog_doors.pulsar.frames import (
    Frame,
    FrameReader,
    frame_of,
    frame_with_entry,
    limits_after_connect,
)
from oncelog_doors.pulsar.home import Home
from oncelog_doors.pulsar.not_offered import declined, is_not_offered
from oncelog_doors.pulsar.paced_requests import PacedRequests
from oncelog_doors.pulsar.ports import Holder
from oncelog_doors.pulsar.producer_slot import ProducerSlot
from oncelog_doors.pulsar.schema_checks import SchemaChecks, schema_of
from oncelog_doors.pulsar.token_watch import TokenWatch
from oncelog_doors.pulsar.topic_requests import TopicRequests
from oncelog_doors.wire.pulsar_commands_pb2 import AuthResponse, Command, Lookup, Ping, Pong, Producer
from oncelog_doors.wire.pulsar_values_pb2 import BrokerEntry

PRODUCERS_MAX = 1000


class Connection(ClientConnection):
    """It has the forms of `producer_slot.Surroundings`, `entry_sender.ConsumerSurroundings`, `topic_requests.Asking`
    and `schema_checks.Checking`."""

    def __init__(self, home: Home) -> None:
        super().__init__(home)
        self.home = home
        self.cluster, self.budget = home.cluster, home.budget
        self.due, self.consuming, self.counts = home.due, home.consuming, home.counts
        self.sends = home.sends
        self.caller: Caller = UNCHECKED
        self.family = ClientFamily.UNKNOWN
        self.slots: dict[int, ProducerSlot] = {}
        self.wants_broker_entry = False
        self.consumers = Consumers(self)
        self._topics = TopicRequests(self)
        self._checks = SchemaChecks(self, partial(self.consumers.handle, "subscribe"))
        self._reader = FrameReader()
        self._admitted: Admitted | None = None
        self._paced = PacedRequests(self, self.timers, home.pace)
        #: None: the client has no token, or one that never ends
        self._token: TokenWatch | None = None
        self._liveness = Liveness(self.timers.now_ms())
        self._wanted: list[Holder] = []
        self._cancel_watch: Callable[[], None] | None = None

    # --- frames -------------------------------------------------------------------------------------------------------

    def received(self, data: bytes) -> None:
        self._perform_liveness(self._liveness.heard(self.timers.now_ms()))
        self._reader.feed(data)

    def handle(self) -> None:
        while self.reads:
            frame = self._reader.read()
            if frame is None:
                return
            self._handle_frame(frame)

    def is_read(self, reads: bool) -> None:
        self._perform_liveness(self._liveness.reading(reads, self.timers.now_ms()))

    def all_was_read(self) -> None:
        self.consumers.read_again()

    def _handle_frame(self, frame: Frame) -> None:
        """Raises InvalidArgument for a command that no client sends."""
        name, body = frame.name, getattr(frame.command, frame.name)
        if (name == "connect") is (self._admitted is not None):
            raise InvalidArgument(f"{name} came {'twice' if self._admitted else 'before CONNECT'}", field="type")
        match name:
            case "connect":
                self._connect(frame.command)
            case "ping":
                self.write(command(pong=Pong()))
            case "pong":
                pass
            case "send":
                self.home.counts.sends += 1
                slot = self.slots.get(body.producer_id)
                if slot is not None:
                    slot.send(frame)
            case "producer":
                opens = ("producer", body.producer_id)
                self._paced.take(self._pace_of(name), partial(self._open_producer, body), opens=opens)
            case "close_producer":
                self._paced.forget(("producer", body.producer_id))
                slot = self.slots.get(body.producer_id)
                if slot is None:
                    self.write(replies.success(body.request_id))
                else:
                    slot.close_by_client(body.request_id)
            case "lookup":
                self._paced.take(self._pace_of(name), partial(self._locate, body))
            case _ if self._topics.handles(name):
                self._paced.take(self._pace_of(name), partial(self._topics.handle, name, body))
            case "auth_response":
                self._renew_token(body)
            case "subscribe":
                opens = ("consumer", body.consumer_id)
                self._paced.take(self._pace_of(name), partial(self._checks.subscribe, body), opens=opens)
            case "close_consumer":
                self._paced.forget(("consumer", body.consumer_id))
                self._checks.forget(body.consumer_id)
                self.consumers.handle(name, body)
            case _ if self.consumers.handles(name):
                self.consumers.handle(name, body)
            case _ if is_not_offered(name):
                answer = declined(name, body)
                if answer is not None:
                    self.write(answer)
            case _:
                raise InvalidArgument(f"a client sent {name}, which only brokers send", field="type")

    # --- connecting ---------------------------------------------------------------------------------------------------

    def not_connected(self) -> str:
        return f"no CONNECT in {CONNECT_MS // 1000} s"

    def _connect(self, whole: Command) -> None:
        asked = whole.connect
        method = asked.auth_method_name or (f"number {asked.auth_method}" if asked.auth_method else "")
        connect = Connect(
            asked.protocol_version, method, asked.auth_data, asked.proxy_to_broker_url,
            asked.original_principal or asked.original_auth_data,
        )  # fmt: skip
        admitted = admission(connect, authentication=self.cluster.authentication)
        if isinstance(admitted, Refusal):
            self._refuse(admitted)
            return
        self._admitted = admitted
        self.family = family_of(asked.client_version)
        self.wants_broker_entry = asked.feature_flags.broker_entry
        if admitted.token is None:
            self._connected(admitted)
            return
        self.hold("connecting")
        can_refresh = asked.feature_flags.auth_refresh
        self.tasks.start(self._authenticate(admitted, admitted.token, can_refresh), what="the check of a token")

    async def _authenticate(self, admitted: Admitted, token: str, can_refresh: bool) -> None:
        proved = await self._proved(token)
        if proved is None:
            return
        self.caller = proved.caller
        self._connected(admitted)
        if proved.ends_in_ms is not None and not self._closed:
            self._token = TokenWatch(self, self.timers, proved.ends_in_ms, can_refresh=can_refresh)
        self.release("connecting")

    async def _proved(self, token: str) -> ProvedCaller | None:
        """None: the token is not valid, and the client has got the answer."""
        try:
            return await self.cluster.caller_of(token, self.peer)
        except OncelogError as error:
            self._refuse(refusal_of(error))
            return None

    def _renew_token(self, answer: AuthResponse) -> None:
        """Raises InvalidArgument for an answer without a challenge."""
        if self._token is None or not self._token.asked:
            raise InvalidArgument("auth_response came without a challenge", field="type")
        token = token_of(answer.response.method, answer.response.data)
        if isinstance(token, Refusal):
            self._refuse(token)
            return
        self.hold("token")
        self.tasks.start(self._renew(self._token, token), what="the check of a renewed token")

    def ask_for_token(self) -> None:
        assert self._admitted is not None, "the client had a token"
        self.write(replies.auth_challenge(self.home.server_version, self._admitted.protocol_version))

    async def _renew(self, watch: TokenWatch, token: str) -> None:
        proved = await self._proved(token)
        if proved is None or self._closed:
            return
        sentence = refusal_of_token(proved.caller, self.caller)
        if sentence is not None:
            self._refuse(Refusal(ServerError.AUTHENTICATION_ERROR, sentence))
            return
        watch.renewed(proved.ends_in_ms)
        self.release("token")

    def _connected(self, admitted: Admitted) -> None:
        if self._closed:
            return
        full = self.authenticated(self.caller.role)
        if full is not None:
            self._refuse(Refusal(ServerError.SERVICE_NOT_READY, full))
            return
        bytes_max = message_bytes_max(self.cluster.batch_bytes_max)
        self._reader.limits = limits_after_connect(bytes_max)
        self._watch()
        self.write(replies.connected(admitted, self.home.server_version, bytes_max))

    def _refuse(self, refusal: Refusal) -> None:
        self.write(replies.error(replies.NO_REQUEST, refusal))
        self.fail(refusal.sentence)

    # --- topics and producers -----------------------------------------------------------------------------------------

    def _pace_of(self, name: str) -> tuple[str, str]:
        """Whose requests of this name share a pace."""
        return name, self._role or self.address

    def _locate(self, asked: Lookup) -> None:
        self.write(replies.located(asked.request_id))

    def _open_producer(self, asked: Producer) -> None:
        topic, name = topic_of(asked.topic), producer_name_of(asked.name)
        refusal = next((each for each in (topic, name) if isinstance(each, Refusal)), None)
        former = self.slots.get(asked.producer_id)
        if former is None and len(self.slots) >= PRODUCERS_MAX:
            sentence = f"a connection has at most {PRODUCERS_MAX} producers: close some, or open another connection"
            refusal = refusal or Refusal(ServerError.NOT_ALLOWED_ERROR, sentence)
        if isinstance(topic, Refusal) or isinstance(name, Refusal) or refusal is not None:
            assert refusal is not None, "one of them is a refusal"
            self.write(replies.error(asked.request_id, refusal))
            return
        if former is not None:
            former.disconnected()
        request = ProducerRequest(
            epoch=asked.epoch,
            token=asked.topic_epoch if name is not None else 0,
            shared=asked.access == Producer.SHARED,
            transactions=asked.transactions,
        )
        slot = ProducerSlot(
            self, ProducerKey(self.number, self.home.next_opening()), topic, name, request,
            producer_id=asked.producer_id, request_id=asked.request_id, subscription=asked.initial_subscription,
            schema=schema_of(asked.schema) if asked.HasField("schema") else None,
        )  # fmt: skip
        self.slots[asked.producer_id] = slot
        slot.begin()

    def over(self, slot: ProducerSlot) -> None:
        if self.slots.get(slot.producer_id) is slot:
            del self.slots[slot.producer_id]

    def perform_budget(self, effects: list[BudgetEffect]) -> None:
        self.home.perform_budget(effects)

    # --- life ---------------------------------------------------------------------------------------------------------

    def wanted(self, holder: Holder) -> None:
        self._wanted.append(holder)
        self._perform_liveness(self._liveness.wanted(self.timers.now_ms()))

    def _perform_liveness(self, effects: list[LivenessEffect]) -> None:
        for effect in effects:
            match effect:
                case WritePing():
                    self.write(command(ping=Ping()))
                    self._watch()
                case SayAlive():
                    for holder in self._wanted:
                        holder.holder_lives()
                    self._wanted.clear()
                case Drop():
                    self.fail(effect.reason)

    def _watch(self) -> None:
        """Look at the time when silence means something."""
        if self._cancel_watch is not None:
            self._cancel_watch()
        self._cancel_watch = None if self._closed else self.timers.at(self._liveness.next_ms, self._tick)

    def _tick(self) -> None:
        self._perform_liveness(self._liveness.tick(self.timers.now_ms()))
        if not self._closed:
            self._watch()

    @property
    def waiting(self) -> int:
        """SENDs without an answer."""
        return sum(slot.waiting for slot in self.slots.values())

    def write(self, answer: Command) -> None:
        if not self._closed:
            self.home.counts.written(answer)
            self._transport.write(frame_of(answer))
            self.written()

    def write_entry(self, front: Command, entry: Buffer, broker_entry: BrokerEntry | None) -> None:
        if not self._closed:
            self._transport.writelines(frame_with_entry(front, entry, broker_entry))

    def ended(self) -> None:
        self._paced.close()
        self._checks.close()
        if self._token is not None:
            self._token.close()

    def lost(self, *, client_lost: bool) -> None:
        if self._cancel_watch is not None:
            self._cancel_watch()
        for slot in list(self.slots.values()):
            slot.disconnected()
        self.consumers.disconnected(client_lost=client_lost)
