"""The asyncio client: one for a process is enough; it holds the connections that its producers and readers share."""

import asyncio
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, TypeVar

from oncelog.client.addresses import Routing, parse_url, routing_of, speaks_tls
from oncelog.client.corruption import OnCorrupt
from oncelog.client.network import Network
from oncelog.client.pending_results import OnUnverified
from oncelog.client.producer import AsyncProducer
from oncelog.client.reader import AsyncReader, last_message_id
from oncelog.client.sender import ProducerOptions
from oncelog.core.access import Caller
from oncelog.core.errors import DeadlineExceeded, InvalidArgument
from oncelog.core.formats.batch import Compression
from oncelog.core.formats.entry import SequenceMode
from oncelog.core.formats.message_id import EARLIEST, Index, MessageId
from oncelog.core.formats.opening import OnConflict
from oncelog.core.names import check_producer_name, parse_topic
from oncelog.core.producer.numbers import check_initial
from oncelog.core.producer.opening import MESSAGE_BYTES_MAX, ProducerSettings
from oncelog.runtime.credentials import Credentials, Token

BATCH_BYTES_MAX = 262_144
PENDING_BYTES_MAX = 67_108_864
OPERATION_TIMEOUT_S = 30.0
#: Below the bound that the session itself keeps, so that waiting for room is what people meet, and no error.
_PENDING_SLACK_BYTES = 1024 * 1024

KeyT = TypeVar("KeyT")
ChoiceT = TypeVar("ChoiceT")

_MODES: dict[str, SequenceMode] = {"monotonic": SequenceMode.MONOTONIC, "contiguous": SequenceMode.CONTIGUOUS}
_ON_CORRUPT: dict[str, OnCorrupt] = {"raise": OnCorrupt.RAISE, "skip": OnCorrupt.SKIP}
_CONFLICTS: dict[str, OnConflict] = {"fence": OnConflict.FENCE, "refuse": OnConflict.REFUSE}
_ON_UNVERIFIED: dict[str, OnUnverified] = {choice.value: choice for choice in OnUnverified}
_COMPRESSIONS: dict[str | None, Compression] = {None: Compression.NONE, "zlib": Compression.ZLIB}


class AsyncClient:
    """Made by `connect`. operation_timeout: seconds that opening a producer or a reader may take; None: for ever.

    internal: for services of the cluster, which reach owners without what is advertised to clients.
    """

    def __init__(
        self,
        url: str,
        *,
        token: Token | None = None,
        tls_ca_file: Path | str | None = None,
        allow_plaintext_token: bool = False,
        operation_timeout: float | None = OPERATION_TIMEOUT_S,
        internal: bool = False,
    ) -> None:
        addresses = parse_url(url)
        credentials = Credentials.of(
            tls=speaks_tls(url),
            token=token,
            tls_ca_file=tls_ca_file,
            plaintext_token_allowed=allow_plaintext_token,
        )
        for address in addresses:
            credentials.check_address(address)
        self._network = Network(addresses, credentials, Routing.INTERNAL if internal else routing_of(url))
        self._timeout_ms = None if operation_timeout is None else int(operation_timeout * 1000)
        self._producers: list[AsyncProducer] = []
        self._readers: list[AsyncReader] = []

    async def create_producer(
        self,
        topic: str,
        *,
        producer_name: str | None = None,
        initial_sequence_id: int | None = None,
        sequence_mode: Literal["monotonic", "contiguous"] = "monotonic",
        on_conflict: Literal["fence", "refuse"] = "fence",
        send_timeout: float | None = None,
        compression: Literal["zlib"] | None = None,
        batch_bytes_max: int = BATCH_BYTES_MAX,
        pending_bytes_max: int = PENDING_BYTES_MAX,
        on_unverified: Literal["accept", "raise"] = "accept",
        on_behalf_of: Caller | None = None,
    ) -> AsyncProducer:
        """Open a producer, fencing every older instance of its name; a missing topic is created where that is allowed.

        topic: `flights` is short for public/default/flights. producer_name None: a unique one is assigned.
        initial_sequence_id: with automatic ids, the last used: the first sent is one above; -1 gives 0; None goes on
        where the log ends. sequence_mode: "contiguous" ids leave no holes. on_conflict "refuse": ProducerBusy while
        another instance is connected; right after a takeover of the topic the answer takes up to 12 s, in which the
        former instance may come back. send_timeout: seconds, then DeadlineExceeded; None: for ever.
        batch_bytes_max: values of one batch. pending_bytes_max: what may be given and not answered yet.
        on_unverified: of a message whose id is older than all that the log remembers of the name, so that it was not
        stored now and may never have been: "accept" is a success with verified=False, and one warning in the log of
        `oncelog.client.unverified`; "raise" fails it with UnverifiedSequence.

        on_behalf_of: superusers only: the caller for whom the producer is opened, and whose role owns its name.

        Raises InvalidName, InvalidArgument, TopicNotFound, ModeMismatch, ProducerBusy, SequenceGap (contiguous with an
        initial_sequence_id behind a gap), DeadlineExceeded after operation_timeout, ClientClosed.
        """
        self._network.check_open()
        name = parse_topic(topic)
        check_initial(initial_sequence_id)
        _check_between("batch_bytes_max", batch_bytes_max, 1, MESSAGE_BYTES_MAX)
        _check_between("pending_bytes_max", pending_bytes_max, 1, 1 << 40)
        if send_timeout is not None and not send_timeout > 0:
            raise InvalidArgument("send_timeout is a number of seconds above 0, or None", field="send_timeout")
        settings = ProducerSettings(
            name=None if producer_name is None else check_producer_name(producer_name),
            mode=_choice("sequence_mode", _MODES, sequence_mode),
            on_conflict=_choice("on_conflict", _CONFLICTS, on_conflict),
            initial_sequence_id=initial_sequence_id,
            send_timeout_ms=None if send_timeout is None else max(1, int(send_timeout * 1000)),
            pending_bytes_max=pending_bytes_max + _PENDING_SLACK_BYTES,
            on_behalf_of=on_behalf_of,
        )
        packing = _choice("compression", _COMPRESSIONS, compression)
        unverified = _choice("on_unverified", _ON_UNVERIFIED, on_unverified)
        producer = AsyncProducer(
            name, ProducerOptions(settings, packing, batch_bytes_max, pending_bytes_max, unverified), self._network
        )
        self._producers = [each for each in self._producers if each.failure is None]
        self._producers.append(producer)
        await producer.open(self._timeout_ms)
        return producer

    async def create_reader(
        self,
        topic: str,
        *,
        start: MessageId | datetime | Index = EARLIEST,
        inclusive: bool = False,
        on_corrupt: Literal["raise", "skip"] = "raise",
    ) -> AsyncReader:
        """Open a reader at EARLIEST, LATEST, a message id (behind it, or with it if `inclusive`), a time or an index.

        LATEST, exclusive: only messages stored from now on. A datetime: the first entry appended at or after it.
        Index(n): the message of this number in the topic, or the first one behind it that is kept; none before it.
        on_corrupt: at an entry that cannot be read, "raise" CorruptEntry or UnreadableEntry, each time; or "skip" it:
        a warning is logged, `reader.skipped` has the place and the reason, and later messages keep their index.
        Raises InvalidName, InvalidArgument (an id of another topic), TopicNotFound, DeadlineExceeded, ClientClosed.
        """
        self._network.check_open()
        reader = AsyncReader(
            parse_topic(topic),
            self._network,
            timeout_ms=self._timeout_ms,
            on_corrupt=_choice("on_corrupt", _ON_CORRUPT, on_corrupt),
        )
        self._readers = [each for each in self._readers if not each.closed]
        self._readers.append(reader)
        await reader.open(start, inclusive=inclusive)
        return reader

    async def last_message_id(self, topic: str) -> MessageId | None:
        """The id of the topic's last message, None when it holds none. Raises TopicNotFound: asking creates nothing."""
        return await last_message_id(self._network, parse_topic(topic), timeout_ms=self._timeout_ms)

    async def close(self, *, flush: bool = True) -> None:
        """End all producers, readers and connections.

        What was given to producers is waited for, at most operation_timeout: then all ends, too, and DeadlineExceeded
        says how many bytes were left. flush False: end at once; what is not answered fails with
        ProducerClosed, whose `stored` is None where the message may be in the log. Raises no send's own error.
        """
        late = None
        try:
            if flush:
                late = await self._flush()
        finally:
            for producer in self._producers:
                await producer.close(flush=False)
            for reader in self._readers:
                await reader.close()
            await self._network.close()
        if late is not None:
            raise late

    async def _flush(self) -> DeadlineExceeded | None:
        """Wait until all producers are answered, but not for ever; the error of those that were not."""
        living = [producer for producer in self._producers if producer.failure is None]
        seconds = None if self._timeout_ms is None else self._timeout_ms / 1000
        try:
            async with asyncio.timeout(seconds):
                await asyncio.gather(*(producer.all_answered() for producer in living))
        except TimeoutError as error:
            left = {p.producer_name: p.pending_bytes for p in living if p.pending_bytes}
            message = (
                f"the client was closed with {sum(left.values())} bytes not answered within {seconds:g} s, of "
                f"producers {', '.join(map(repr, left))}: each send's own error says whether its message may be stored"
            )
            late = DeadlineExceeded(message)
            late.__cause__ = error
            return late
        return None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Flushes; but not when leaving by an exception, for nobody would wait for the results."""
        await self.close(flush=kind is None)


async def connect(
    url: str,
    *,
    token: Token | None = None,
    tls_ca_file: Path | str | None = None,
    allow_plaintext_token: bool = False,
    operation_timeout: float | None = OPERATION_TIMEOUT_S,
) -> AsyncClient:
    """A client of the cluster whose metadata services are at `oncelog://host:port[,host:port]`.

    url: `oncelog+tls://…` for a cluster that speaks TLS. `oncelog+proxy://…` and `oncelog+proxy+tls://…`: the metadata
    services pass everything on to the topic owners, for clients that reach them and nobody else.

    token: who calls: the token, a pathlib.Path of the file that holds it (read again when it changes), or a function
    that returns it, called for each call and stream. tls_ca_file: PEM of the cluster's own CA; None: the system's CAs.
    allow_plaintext_token: send the token without TLS to other machines, too.

    Nothing is asked yet: a cluster that is not there shows when a producer or reader is opened.
    Raises InvalidArgument: a bad URL, a file that cannot be read, a token that would go out in plain text.
    """
    return AsyncClient(
        url,
        token=token,
        tls_ca_file=tls_ca_file,
        allow_plaintext_token=allow_plaintext_token,
        operation_timeout=operation_timeout,
    )


def _choice(field: str, choices: dict[KeyT, ChoiceT], given: KeyT) -> ChoiceT:
    if given not in choices:
        names = ", ".join(repr(name) for name in choices)
        raise InvalidArgument(f"{field} is one of {names}, not {given!r}", field=field)
    return choices[given]


def _check_between(field: str, value: int, least: int, most: int) -> None:
    if isinstance(value, bool) or not least <= value <= most:
        raise InvalidArgument(f"{field} is {least} to {most}, not {value!r}", field=field, limit=most)
