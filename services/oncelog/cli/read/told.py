"""What `read`, `consume` and `produce` say on standard error: a topic that was missing, a wait."""

import asyncio
from typing import TYPE_CHECKING

from rich.console import Console

from oncelog.client.network.lookup import partitions_in
from oncelog.core.errors import InvalidArgument, TopicNotFound

if TYPE_CHECKING:
    from oncelog.client.client import AsyncClient

#: Silence after which a terminal shows that the command waits.
WAIT_S = 1.0


async def is_missing(client: "AsyncClient", topic: str) -> bool:
    """Whether the topic does not exist yet. Creates none. Raises as `client.last_message_id`."""
    try:
        await client.last_message_id(topic)
    except TopicNotFound:
        return True
    except InvalidArgument as error:
        if not partitions_in(error):
            raise
    return False


def tell_created(errors: Console, topic: str) -> None:
    """The command has created the topic, perhaps because its name was mistyped."""
    say(
        errors,
        f"topic {topic} did not exist and was created: check the name (oncelog admin topics list), or publish to it "
        f"(oncelog produce {topic} --stdin)",
    )


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
