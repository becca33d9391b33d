"""One connection of a client of Kafka.

    new ──(SASL, if the cluster wants tokens)──▶ open ──▶ closed
     │ 10 s, or anything else                              ▲
     └─────────────────────────────────────────────────────┘

Requests begin in their order, run at the same time, and are answered in their order. The connection is held, and
nothing is read, while a token is checked and while too many requests have no answer. A client that breaks the protocol
is disconnected, with a log line. When its token ends, the connection is closed between two answers, unless the client
has authenticated itself again before.

If a client leaves, its requests end, but for batches with acks=0: such a client waits for nothing, and closes the
connection behind its last batch (hazard batch-before-the-close).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from oncelog.core.access import UNCHECKED, Caller
from oncelog.core.errors import InvalidArgument, OncelogError, Unauthenticated
from oncelog.core.names import NamespaceName
from oncelog_doors.connections.connection import ClientConnection
from oncelog_doors.connections.ports import ProvedCaller
from oncelog_doors.connections.received import Buffer
from oncelog_doors.core.kafka.error_codes import ErrorCode
from oncelog_doors.core.kafka.sasl import MECHANISMS, credentials_of
from oncelog_doors.core.shared.renewed_tokens import refusal_of_token
from oncelog_doors.kafka.administration import ADMINISTRATION
from oncelog_doors.kafka.administration_ports import AdministrationPort
from oncelog_doors.kafka.asking import Address
from oncelog_doors.kafka.codec import Body, read_request
from oncelog_doors.kafka.fetching import Fetching
from oncelog_doors.kafka.frames import Request, RequestReader, answer, answer_in
from oncelog_doors.kafka.group_offsets import OFFSET_REQUESTS, Offsets
from oncelog_doors.kafka.groups import GROUP_REQUESTS, Groups
from oncelog_doors.kafka.home import BUDGET, KafkaHome
from oncelog_doors.kafka.list_offsets import list_offsets
from oncelog_doors.kafka.metadata import metadata
from oncelog_doors.kafka.producing import Producing
from oncelog_doors.kafka.small_answers import api_versions, describe_acls, find_coordinator

_LOG = logging.getLogger(__name__)

#: Requests of one connection without an answer.
REQUESTS_MAX = 100
#: As Kafka's brokers; clients end their own idle connections a minute earlier.
IDLE_MS = 600_000
_LOOPBACK = {"127.0.0.1", "::1"}
#: What a client may ask before it is authenticated.
_BEFORE = {"ApiVersions", "SaslHandshake", "SaslAuthenticate"}

#: None: the request has no answer.
Answering = Coroutine[Any, Any, Body | None]


class _Pending:
    """A request whose turn has not come. size: bytes of it that are counted. frame: the answer, empty if it has none;
    None: it is not there yet. outlives: it is carried out although its client has left."""

    __slots__ = ("frame", "outlives", "request", "size", "task")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.size = len(request.body)
        self.outlives = False
        self.frame: list[Buffer] | None = None
        self.task: asyncio.Task[None] | None = None


class Connection(ClientConnection):
    """It has the forms of `asking.Asking` and `producing.Sending`."""

    def __init__(self, home: KafkaHome) -> None:
        super().__init__(home)
        self.home = home
        self.cluster = home.cluster
        self.namespace: NamespaceName = home.namespace
        self.caller: Caller = UNCHECKED
        #: of the client; None: it needs none
        self._token: str | None = None
        self._reader = RequestReader()
        self._pending: deque[_Pending] = deque()
        self._fetching = Fetching(self, self.tasks, self.timers)
        self.producers = home.producers
        self._producing = Producing(self)
        self._groups = Groups(self, home.expiry.watch)
        self._offsets = Offsets(self, home.expiry.watch)
        #: of the handshake, until the token has come
        self._mechanism: str | None = None
        self._cancel_token_end: Callable[[], None] | None = None
        self._cancel_idle: Callable[[], None] | None = None
        self._heard_ms = self.timers.now_ms()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._look_for_silence()
        if not self._closed and not self.cluster.authentication:
            self.authenticated("")
            self._reader.bytes_max = self.home.request_bytes_max

    @property
    def broker(self) -> Address:
        """A client on this machine, or one whose connection is forwarded to it, stays at the address that it has used:
        that of all others may not be reachable from there."""
        host, port = self._transport.get_extra_info("sockname")[:2]
        advertised = self.home.advertised
        return Address(str(host), int(port)) if advertised is None or self.address in _LOOPBACK else advertised

    @property
    def administration(self) -> AdministrationPort:
        return self.cluster.administration(self._token)

    # --- requests -----------------------------------------------------------------------------------------------------

    def received(self, data: bytes) -> None:
        self._heard_ms = self.timers.now_ms()
        self._reader.feed(data)

    def _look_for_silence(self) -> None:
        """End the connection of a client that has said nothing for a while, and waits for nothing."""
        now_ms = self.timers.now_ms()
        if self._pending:
            self._heard_ms = now_ms
        if now_ms >= self._heard_ms + IDLE_MS:
            self.fail(f"it said nothing for {IDLE_MS // 60_000} min")
        if not self._closed:
            self._cancel_idle = self.timers.at(self._heard_ms + IDLE_MS, self._look_for_silence)

    def handle(self) -> None:
        while self.reads:
            request = self._reader.read()
            if request is None:
                return
            self._take(request)

    def _take(self, request: Request) -> None:
        """Raises InvalidArgument."""
        if not self._is_authenticated and request.api not in _BEFORE:
            raise InvalidArgument(f"{request.api} came before the client was authenticated", field="api_key")
        pending = _Pending(request)
        answering = self._begin(pending)
        self._pending.append(pending)
        self.bytes_taken(pending.size)
        if len(self._pending) >= REQUESTS_MAX:
            self.hold("requests")
        pending.task = self.tasks.start(self._answer(pending, answering), what=f"an answer to {request.api}")

    def _begin(self, pending: _Pending) -> Answering:
        """Whatever must be done in the order of the requests is done when this returns. Raises InvalidArgument."""
        request = pending.request
        version = request.version
        body = read_request(request.api, version, request.body) if request.known else {}
        match request.api:
            case "Fetch":
                return self._fetching.fetch(body)
            case "Produce":
                pending.outlives = body["acks"] == 0
                return self._producing.produce(version, body)
            case "InitProducerId":
                return self._producing.init_producer_id(body)
            case "Metadata":
                return metadata(self, version, body)
            case "ListOffsets":
                return list_offsets(self, body)
            case "ApiVersions":
                return _at_once(api_versions(known=request.known))
            case "FindCoordinator":
                return _at_once(find_coordinator(body, self.broker))
            case "DescribeAcls":
                return _at_once(describe_acls())
            case "SaslHandshake":
                return _at_once(self._handshake(body["mechanism"]))
            case "SaslAuthenticate":
                self.hold("token")
                return self._authenticate(bytes(body["auth_bytes"]))
            case api if api in ADMINISTRATION:
                return ADMINISTRATION[api](self, body)
            case api if api in GROUP_REQUESTS:
                return self._groups.answer(request, body)
            case api if api in OFFSET_REQUESTS:
                return self._offsets.answer(request, body)
            case _:
                raise InvalidArgument(f"a client sent {request.api}, which is not offered", field="api_key")

    async def _answer(self, pending: _Pending, answering: Answering) -> None:
        request = pending.request
        try:
            body = await answering
        except OncelogError as error:
            if self._closed:
                _LOG.info("%s of %s, which has left, is not carried out: %s", request.api, self.peer, error)
            self.fail(f"{request.api} has no answer: {error}")
            return
        finally:
            if self._closed:
                self._over(pending)
        self.home.counts.answered(request.api, body or {})
        if body is None:
            pending.frame = []
        else:
            # The version of the answer is one that every client reads.
            pending.frame = answer(request, body) if request.known else answer_in(request, 0, body)
        self._write_answers()

    def _write_answers(self) -> None:
        """Those whose turn has come."""
        while self._pending and self._pending[0].frame is not None and not self._closed:
            pending = self._pending.popleft()
            self._over(pending)
            assert pending.frame is not None, "it was looked at"
            self.home.counts.bytes_out += sum(map(len, pending.frame))
            self._transport.writelines(pending.frame)
            self.written()
        if len(self._pending) < REQUESTS_MAX:
            self.release("requests")

    def _over(self, pending: _Pending) -> None:
        """Its bytes count no more."""
        if pending.size:
            self.bytes_decided(pending.size)
            pending.size = 0

    def bytes_taken(self, size: int) -> None:
        if self.home.budget.taken(self.number, size):
            self.hold(BUDGET)

    def sent_without_numbers(self) -> None:
        self.home.counts.unnumbered += 1

    def bytes_decided(self, size: int) -> None:
        self.home.bytes_decided(self.number, size)

    # --- authentication -----------------------------------------------------------------------------------------------

    def not_connected(self) -> str:
        return "it was not authenticated in time"

    def _handshake(self, mechanism: str) -> Body:
        if not self.cluster.authentication:
            return {"error_code": ErrorCode.ILLEGAL_SASL_STATE}
        if mechanism not in MECHANISMS:
            return {"error_code": ErrorCode.UNSUPPORTED_SASL_MECHANISM, "mechanisms": list(MECHANISMS)}
        self._mechanism = mechanism
        return {"mechanisms": list(MECHANISMS)}

    async def _authenticate(self, data: bytes) -> Body:
        mechanism, self._mechanism = self._mechanism, None
        if mechanism is None:
            self.release("token")
            return {"error_code": ErrorCode.ILLEGAL_SASL_STATE, "error_message": "SaslHandshake comes first"}
        try:
            credentials = credentials_of(mechanism, data)
            proved = await self.cluster.caller_of(credentials.token, self.peer)
            self._prove(proved)
        except OncelogError as error:
            if error.retriable:  # clients take every answer but success as final
                raise
            return self._refuse(str(error))
        self.namespace, self._token = credentials.namespace or self.home.namespace, credentials.token
        self._reader.bytes_max = self.home.request_bytes_max
        self.release("token")
        return {"session_lifetime_ms": proved.ends_in_ms or 0}

    def _prove(self, proved: ProvedCaller) -> None:
        """The client is who the token says. Raises Unauthenticated."""
        if self._is_authenticated:
            refusal = refusal_of_token(proved.caller, self.caller)
        else:
            refusal = self.authenticated(proved.caller.role)
        if refusal is not None:
            raise Unauthenticated(refusal)
        self.caller = proved.caller
        if self._cancel_token_end is not None:
            self._cancel_token_end()
            self._cancel_token_end = None
        if proved.ends_in_ms is not None and not self._closed:
            due_ms = self.timers.now_ms() + proved.ends_in_ms
            self._cancel_token_end = self.timers.at(due_ms, self._token_ended)

    def _refuse(self, sentence: str) -> Body:
        """The connection ends behind the answer."""
        _LOG.info("connection of %s is not authenticated: %s", self.peer, sentence)
        asyncio.get_running_loop().call_soon(self.drain)
        return {"error_code": ErrorCode.SASL_AUTHENTICATION_FAILED, "error_message": sentence}

    def _token_ended(self) -> None:
        self._cancel_token_end = None
        _LOG.info("connection of %s is closed: its token has ended", self.peer)
        self.drain()

    # --- life ---------------------------------------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        return len(self._pending)

    def drain(self) -> None:
        self._fetching.hurry()
        self._groups.hurry()
        super().drain()

    def ended(self) -> None:
        self._fetching.close()
        for pending in self._pending:
            if pending.task is not None and not pending.outlives:
                # Behind its first step: a batch that outlives the connection may wait for its turn.
                asyncio.get_running_loop().call_soon(pending.task.cancel)
        for cancel in (self._cancel_token_end, self._cancel_idle):
            if cancel is not None:
                cancel()
        self._cancel_token_end = self._cancel_idle = None

    def lost(self, *, client_lost: bool) -> None:
        for pending in self._pending:
            if pending.task is None or pending.task.done() or not pending.outlives:
                self._over(pending)
        self._pending.clear()


async def _at_once(body: Body) -> Body:
    return body
