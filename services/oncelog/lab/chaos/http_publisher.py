"""The publishing client that can replay nothing but its own last request: one message a call, under an Idempotency-Key.

It repeats a request under its key until the answer decides, and only then makes the next one. So whatever becomes of
an answer on its way, the message must be in the log once, and before the next.
"""

import asyncio
from urllib.parse import quote

from oncelog.lab.chaos.access import NOT_REACHED, Access, Rest, RestAnswer
from oncelog.lab.chaos.checker import Fate, message_value
from oncelog.lab.chaos.report_lines import Record, Say

_PERIOD_S = 0.25
_AGAIN_S = 0.2
#: How long a request is repeated after the run was ended.
_LAST_ANSWER_DEADLINE_S = 60.0
#: Answers that say nothing about whether it is stored: in progress, too much, or whoever answers does not know.
_UNDECIDED = frozenset({NOT_REACHED, 408, 409, 425, 429, 500, 502, 503, 504})


def publish_path(topic: str) -> str:
    """Where messages of a topic, tenant/namespace/name, are posted."""
    return f"/topics/persistent/{quote(topic)}"


def publish_body(value: bytes) -> dict[str, object]:
    return {"messages": [{"value": value.decode()}]}


async def why_no_http(rest: Rest, topic: str, key: str, value: bytes) -> str | None:
    """Why this cluster takes no messages over HTTP; None when it does: then this message is stored.

    A cluster whose Redis is not there at this moment counts as one that is not set up for it.
    """
    answer = await rest.call("POST", publish_path(topic), publish_body(value), {"Idempotency-Key": key})
    if answer.ok:
        return None
    if answer.status in {404, 405}:
        return "this cluster has no HTTP publishing"
    return f"HTTP publishing answers {answer.status}: {answer.detail}"


class HttpPublisher:
    """Made with number 0 stored already, by `why_no_http`."""

    def __init__(self, name: str, topic: str, access: Access, record: Record, say: Say, seed: int) -> None:
        self.name = name
        self.stopping = asyncio.Event()
        self._topic = topic
        self._access = access
        self._record = record
        self._say = say
        self._seed = seed

    def key(self, number: int) -> str:
        return f"{self._topic}:{self.name}:{number}"

    async def run(self) -> None:
        rest = self._access.rest()
        number = 1
        try:
            self._record.pulse.begins(self.name)
            while not self.stopping.is_set():
                await self._publish(rest, number)
                number += 1
                await asyncio.sleep(_PERIOD_S)
        finally:
            await rest.close()

    async def _publish(self, rest: Rest, number: int) -> None:
        """One message, until an answer decides."""
        self._record.invoke(self.name, number, 1)
        body = publish_body(message_value(self.name, number, self._seed))
        headers = {"Idempotency-Key": self.key(number)}
        clock = asyncio.get_running_loop().time
        ended_at = None
        while True:
            answer = await rest.call("POST", publish_path(self._topic), body, headers)
            if answer.status not in _UNDECIDED:
                self._decided(number, answer)
                return
            if self.stopping.is_set():
                ended_at = ended_at or clock()
                if clock() - ended_at > _LAST_ANSWER_DEADLINE_S:
                    return
            await asyncio.sleep(_AGAIN_S)

    def _decided(self, number: int, answer: RestAnswer) -> None:
        if answer.ok:
            self._record.answer(self.name, number, 1, Fate.STORED)
            self._record.pulse.acked(self.name)
        else:
            self._record.answer(self.name, number, 1, Fate.FAILED)
            self._say("trouble", client=self.name, error=f"HTTP {answer.status}: {answer.detail}")
