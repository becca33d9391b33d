"""What `read`, `consume` and `produce` say on standard error: a topic that was missing, a wait."""

import asyncio
from typing import TYPE_CHECKING

from rich.console import Console

from oncelog.client.network.backoff import persist
from oncelog.core.errors import TopicNotFound
from oncelog.core.names import parse_topic

if TYPE_CHECKING:
    from oncelog.client.client import AsyncClient

#: Silence after which a terminal shows that the command waits.
WAIT_S = 1.0


async def is_missing(client: "AsyncClient", topic: str, timeout_s: float) -> bool:
    """Whether the topic does not exist yet. Creates none. Needs the right to produce or to consume.

    timeout_s: for the answer. Raises InvalidName, PermissionDenied, DeadlineExceeded or ClientClosed.
    """
    from oncelog.client.client import network_of

    name, lookup = parse_topic(topic), network_of(client).lookup
    try:
        await persist(lambda _: lookup.partitions(name), timeout_ms=int(timeout_s * 1000), what=f"topic {name}")
    except TopicNotFound:
        return True
    return False


def tell_created(errors: Console, topic: str, *, produces: bool = False) -> None:
    """The command has created the topic, perhaps because its name was mistyped. produces: and publishes to it."""
    otherwise = "" if produces else f", or publish to it (oncelog produce {topic} --stdin)"
    say(errors, f"topic {topic} did not exist and was created: check the name (oncelog admin topics list){otherwise}")


def say(errors: Console, sentence: str) -> None:
    errors.print(sentence, markup=False, soft_wrap=True)


class WaitingHint:
    """Says once what the command waits for; only on a terminal, after WAIT_S of silence.

    awaited: for example "messages of orders".
    """

    def __init__(self, errors: Console, awaited: str) -> None:
        self._errors = errors
        self._awaited = awaited
        self._timer: asyncio.TimerHandle | None = None
        self._wanted = errors.is_terminal

    def begins(self) -> None:
        """The command waits from now on."""
        if self._wanted:
            self._timer = asyncio.get_running_loop().call_later(WAIT_S, self._tell)

    def ends(self) -> None:
        """What was awaited has come, or the command ends."""
        if self._timer is not None:
            self._timer.cancel()

    def _tell(self) -> None:
        self._wanted = False
        say(self._errors, f"waiting for {self._awaited}; Ctrl-C ends")
