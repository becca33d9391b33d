"""Until when the token of a connection is valid, and how the client is asked for the next one.

    valid ──30 s before its end──▶ asked ──a later token──▶ valid
      │                              │
      └── the client cannot ─────────┴── at its end ──▶ the connection is closed

A client is asked if it says that it can be (`auth_refresh`). A token that ends sooner is asked for after half of its
time. A client that answers with a token that ends no later is not asked again: it has none.
"""

from dataclasses import dataclass

ASK_BEFORE_MS = 30_000
#: What the challenge holds: clients compare it with these bytes.
REFRESH = b"PulsarAuthRefresh"
#: Ends of tokens are compared through two clocks.
_SLACK_MS = 1_000


@dataclass(frozen=True, slots=True)
class AskForToken:
    """Write AUTH_CHALLENGE."""


@dataclass(frozen=True, slots=True)
class TokenEnded:
    """Close the connection."""


TokenEffect = AskForToken | TokenEnded


class TokenLife:
    """Of one connection. `next_ms` says when `tick` is called next."""

    def __init__(self, now_ms: int, ends_ms: int, *, can_refresh: bool) -> None:
        self._ends_ms = ends_ms
        self._ask_ms = _when_to_ask(now_ms, ends_ms) if can_refresh else None
        self._asked = False

    @property
    def next_ms(self) -> int:
        return self._ends_ms if self._ask_ms is None else self._ask_ms

    @property
    def asked(self) -> bool:
        """Whether the client was asked, and has not answered."""
        return self._asked

    def tick(self, now_ms: int) -> list[TokenEffect]:
        """Some time has passed."""
        if now_ms >= self._ends_ms:
            return [TokenEnded()]
        if self._ask_ms is not None and now_ms >= self._ask_ms:
            self._ask_ms, self._asked = None, True
            return [AskForToken()]
        return []

    def answered(self, now_ms: int, ends_ms: int) -> None:
        """The client has sent a token of the same role, valid until then."""
        later = ends_ms > self._ends_ms + _SLACK_MS
        self._asked, self._ends_ms = False, max(self._ends_ms, ends_ms)
        self._ask_ms = _when_to_ask(now_ms, ends_ms) if later else None


def _when_to_ask(now_ms: int, ends_ms: int) -> int:
    return max(ends_ms - ASK_BEFORE_MS, now_ms + (ends_ms - now_ms) // 2)
