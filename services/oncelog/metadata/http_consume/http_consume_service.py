"""The sessions of HTTP consume that this replica keeps.

A session is a consumer of the SDK, so the topic owner decides about every delivery and acknowledgement. When a session
ends, or this replica does, the owner gives what is not acknowledged to other consumers at once: a session holds nothing
that is not in the log.
"""

import asyncio
import secrets
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from oncelog.client.client import AsyncClient
from oncelog.client.consuming.subscribing import consumer_settings
from oncelog.client.counted_consumer import abandon, subscribe_within
from oncelog.client.values.messages import Receipt
from oncelog.core.errors import LimitReached, ServiceUnavailable, SessionGone, TooManyRequests
from oncelog.core.formats.message_id import EARLIEST, LATEST
from oncelog.core.http_consume.delivery_id import SECRET_BYTES, home_in, session_id
from oncelog.core.http_consume.session import ConsumeSession
from oncelog.core.http_consume.session_bytes import SessionBytes
from oncelog.metadata.http_consume.bodies import Event, NewSession, Outcome, SessionView
from oncelog.metadata.http_consume.open_session import OpenSession, Place, Taking
from oncelog.metadata.http_consume.replicas import Replicas
from oncelog.metadata.topics.topic_lookup import TopicLookup

SWEEP_S = 0.25


class HttpConsumeService:
    """Start `run` as a task. Call `close` before the REST server stops, and before the client is closed."""

    def __init__(
        self, client: AsyncClient, lookup: TopicLookup, replicas: Replicas, *, sessions_max: int, bytes_max: int
    ) -> None:
        """sessions_max: sessions kept here. bytes_max: of the messages that wait for all of them. One caller gets at
        most half of both."""
        self.replicas = replicas
        #: messages by "given", "acknowledged" and "returned"
        self.counts: Counter[str] = Counter()
        self._client = client
        self._lookup = lookup
        self._sessions_max = sessions_max
        self.bytes = SessionBytes(bytes_max, sessions_max)
        self._sessions: dict[str, OpenSession] = {}
        #: {caller: its sessions, also those that are being opened}
        self._callers: Counter[str] = Counter()
        self._ending: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def session_count(self) -> int:
        return len(self._sessions)

    # --- life of sessions ---------------------------------------------------------------------------------------------

    async def open(self, place: Place, new: NewSession, peer: str) -> SessionView:
        """Attach a consumer. peer: the address of the client, which counts as the caller without authentication.

        Raises TooManyRequests, TopicNotFound, and the errors of `AsyncClient.subscribe`.
        """
        caller = f"role {place.caller.role}" if place.caller.role else f"host {peer}"
        self._check_room(caller)
        self._callers[caller] += 1
        try:
            session = await self._open(place, new, caller)
        except BaseException:
            self._leaves(caller)
            raise
        self._sessions[session.session] = session
        self._abandon_too_large(caller)  # messages have come before it was known
        if self._closed:
            await self._end(session, _stopping())
            raise _not_opened()
        return SessionView(
            session=session.session,
            topic=str(place.topic),
            subscription=place.subscription,
            type=new.type,
            ack_timeout=new.ack_timeout,
            window=new.window,
        )

    def _check_room(self, caller: str) -> None:
        if self._closed:
            raise _not_opened()
        if self._callers.total() >= self._sessions_max:
            message = f"this metadata service has {self._sessions_max} open sessions, the maximum: retry shortly"
            raise TooManyRequests(message, field="session", limit=self._sessions_max)
        most = max(1, self._sessions_max // 2)
        if self._callers[caller] >= most:
            message = f"{caller} has {most} open sessions here, the maximum for one caller: delete some"
            raise TooManyRequests(message, field="session", limit=most)
        self.bytes.check_room(caller)

    async def _open(self, place: Place, new: NewSession, caller: str) -> OpenSession:
        # A role that may only consume creates no topic; the client of this service could.
        await self._lookup.find(replace(place.topic, partition=None))
        name = session_id(self.replicas.own, secrets.token_bytes(SECRET_BYTES))
        # Not the session's id, which must stay unknown to those who see the consumers.
        consumer_name = f"http-{secrets.token_hex(6)}"
        settings = consumer_settings(
            place.subscription, new.type, consumer_name, None, None, new.ack_timeout, new.window, 0, None
        )
        settings = replace(settings, receive_bytes=self.bytes.share_bytes)
        start, holds = EARLIEST if new.start == "earliest" else LATEST, partial(self._holds, caller, name)
        try:
            consumer = await subscribe_within(self._client, place.topic, settings, start, holds)
        except BaseException:
            self.bytes.ended(caller, name)
            raise
        ack_timeout_ms, now_ms = new.ack_timeout * 1000, OpenSession.now_ms()
        core = ConsumeSession[Receipt](ack_timeout_ms=ack_timeout_ms, window=new.window, now_ms=now_ms)
        return OpenSession(name, place, caller, consumer, core)

    def _holds(self, caller: str, session: str, size: int) -> None:
        """So many bytes more, or less, wait for a session, perhaps one that is being opened."""
        self.bytes.changed(caller, session, size)
        if size > 0 and self.bytes.too_large(caller) is not None:
            # Not from here, where the consumer is about to handle what has arrived.
            asyncio.get_running_loop().call_soon(self._abandon_too_large, caller)

    def _abandon_too_large(self, caller: str) -> None:
        session = self._sessions.get(str(self.bytes.too_large(caller)))  # None: none is, or it is being opened
        if session is not None:
            abandon(
                session.consumer,
                LimitReached(
                    f"more than {self.bytes.caller_bytes_max} bytes of messages waited for the sessions of "
                    f"{session.caller}, and most of them for this one: use fewer sessions for topics with large "
                    "messages, and take what waits",
                    field="session",
                    limit=self.bytes.caller_bytes_max,
                ),
            )

    def find(self, session: str, place: Place) -> OpenSession | None:
        """The session, if it is kept here and belongs to the place; None: another replica may keep it.

        Raises SessionGone.
        """
        found = self._sessions.get(session)
        if found is not None and found.place == place:
            found.check_open()
            return found
        home = home_in(session)
        if home is None or home == self.replicas.own:
            raise gone()
        return None

    async def delete(self, session: OpenSession) -> None:
        """Returns when its messages can go to other consumers."""
        await self._end(session, SessionGone("this session was deleted: open a new one"))

    async def _end(self, session: OpenSession, why: SessionGone) -> None:
        if self._sessions.pop(session.session, None) is not None:
            self._leaves(session.caller)
        await session.end(why)
        self.bytes.ended(session.caller, session.session)

    def _leaves(self, caller: str) -> None:
        self._callers[caller] -= 1
        if not self._callers[caller]:
            del self._callers[caller]

    # --- requests of a session ----------------------------------------------------------------------------------------

    async def take(self, session: OpenSession, taking: Taking, client_gone: "asyncio.Future[None]") -> list[Event]:
        """As `OpenSession.take`."""
        events = await session.take(taking, client_gone)
        self.counts["given"] += len(events)
        return events

    async def ack(self, session: OpenSession, ids: Sequence[str]) -> list[Outcome]:
        """As `OpenSession.ack`."""
        outcomes = await session.ack(ids)
        self.counts["acknowledged"] += sum(each.durable is True for each in outcomes)
        return outcomes

    async def nack(self, session: OpenSession, ids: Sequence[str], delay_s: float | None) -> list[Outcome]:
        """As `OpenSession.nack`."""
        outcomes = await session.nack(ids, delay_s)
        self.counts["returned"] += sum(each.durable is True for each in outcomes)
        return outcomes

    # --- life ---------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """End the sessions whose clients are silent, and those that have failed; never returns."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.replicas.run())
            while True:
                await asyncio.sleep(SWEEP_S)
                now_ms = OpenSession.now_ms()
                for session in list(self._sessions.values()):
                    if session.core.is_silent(now_ms):
                        self._end_later(session, gone())
                    else:
                        with suppress(SessionGone):
                            session.check_open()
                        if session.over is not None:
                            self._end_later(session, session.over)

    def _end_later(self, session: OpenSession, why: SessionGone) -> None:
        task = asyncio.ensure_future(self._end(session, why))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        """End all sessions: their requests are answered, and their messages go to other consumers."""
        self._closed = True
        for session in list(self._sessions.values()):
            self._end_later(session, _stopping())
        while self._ending:
            await asyncio.wait(self._ending)
        await self.replicas.close()


def gone() -> SessionGone:
    return SessionGone(
        "no such session: it was deleted, had no request for its ack_timeout, or its metadata service has ended. Open "
        "another one; messages that were not acknowledged are delivered again"
    )


def _stopping() -> SessionGone:
    return SessionGone("the metadata service that keeps this session is stopping: open a new one, at another service")


def _not_opened() -> ServiceUnavailable:
    return ServiceUnavailable("this metadata service is stopping: open the session at another one")
