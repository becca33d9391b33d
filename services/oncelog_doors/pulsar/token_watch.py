"""Performs what `TokenLife` decides about the token of one connection."""

from collections.abc import Callable
from typing import Protocol, assert_never

from oncelog_doors.connections.ports import Timers
from oncelog_doors.core.pulsar.token_life import AskForToken, TokenEnded, TokenLife


class Authenticated(Protocol):
    """The connection."""

    def ask_for_token(self) -> None:
        """Write AUTH_CHALLENGE."""

    def fail(self, reason: str) -> None:
        """End the connection."""


class TokenWatch:
    """Of a token that ends."""

    def __init__(self, connection: Authenticated, timers: Timers, ends_in_ms: int, *, can_refresh: bool) -> None:
        self._connection, self._timers = connection, timers
        now_ms = timers.now_ms()
        self._life = TokenLife(now_ms, now_ms + ends_in_ms, can_refresh=can_refresh)
        self._cancel_timer: Callable[[], None] | None = None
        self._watch()

    @property
    def asked(self) -> bool:
        """Whether the client was asked, and has not answered."""
        return self._life.asked

    def renewed(self, ends_in_ms: int | None) -> None:
        """The client has sent a token of its role. None: it never ends."""
        if ends_in_ms is None:
            self.close()
            return
        now_ms = self._timers.now_ms()
        self._life.answered(now_ms, now_ms + ends_in_ms)
        self._watch()

    def close(self) -> None:
        if self._cancel_timer is not None:
            self._cancel_timer()
            self._cancel_timer = None

    def _watch(self) -> None:
        self.close()
        self._cancel_timer = self._timers.at(self._life.next_ms, self._tick)

    def _tick(self) -> None:
        for effect in self._life.tick(self._timers.now_ms()):
            match effect:
                case AskForToken():
                    self._connection.ask_for_token()
                case TokenEnded():
                    self._connection.fail("its token has ended")
                    return
                case _:
                    assert_never(effect)
        self._watch()
