"""The publishing client over HTTP: one message per request, with an Idempotency-Key.

It repeats a request with the same key until an answer is final, and only then sends the next message. So the message
must be in the log once, before the next one, whatever happened to the answers.
"""

import asyncio
from urllib.parse import quote

from oncelog_lab.access import NO_RESPONSE, RestAnswer, RestClient
from oncelog_lab.acknowledgements import SendFate
from oncelog_lab.workload.messages import message_value
from oncelog_lab.workload.publishers import ClientSetup

_PERIOD_S = 0.25
_RETRY_AFTER_S = 0.2
#: How long a request is repeated after the end of the run.
_LAST_ANSWER_DEADLINE_S = 60.0
#: Answers that do not tell whether the message is stored.
_NOT_FINAL = frozenset({NO_RESPONSE, 408, 409, 425, 429, 500, 502, 503, 504})


def publish_path(topic: str) -> str:
    """The path for messages of a topic, tenant/namespace/name."""
    return f"/topics/persistent/{quote(topic)}"


def publish_body(value: bytes) -> dict[str, object]:
    return {"messages": [{"value": value.decode()}]}


async def why_no_http(rest: RestClient, topic: str, key: str, value: bytes) -> str | None:
    """Publish one message. Returns why the cluster does not accept it, or None if it is stored.

    A cluster whose Redis is down at this moment counts as one without HTTP publishing.
    """
    answer = await rest.call("POST", publish_path(topic), publish_body(value), {"Idempotency-Key": key})
    if answer.ok:
        return None
    if answer.status in {404, 405}:
        return "this cluster has no HTTP publishing"
    return f"HTTP publishing answers {answer.status}: {answer.detail}"


class HttpPublisher:
    """Message 0 is stored already, by `why_no_http`."""

    def __init__(self, name: str, setup: ClientSetup) -> None:
        self.name = name
        self.stopping = asyncio.Event()
        self._setup = setup

    def key(self, number: int) -> str:
        return f"{self._setup.topic}:{self.name}:{number}"

    async def run(self) -> None:
        rest = self._setup.access.rest()
        number = 1
        try:
            self._setup.record.pauses.begins(self.name)
            while not self.stopping.is_set():
                await self._publish(rest, number)
                number += 1
                await asyncio.sleep(_PERIOD_S)
        finally:
            await rest.close()

    async def _publish(self, rest: RestClient, number: int) -> None:
        """One message, until an answer is final."""
        self._setup.record.sent(self.name, number, 1)
        body = publish_body(message_value(self.name, number, self._setup.seed))
        headers = {"Idempotency-Key": self.key(number)}
        clock = asyncio.get_running_loop().time
        stopped_at = None
        while True:
            answer = await rest.call("POST", publish_path(self._setup.topic), body, headers)
            if answer.status not in _NOT_FINAL:
                self._record(number, answer)
                return
            if self.stopping.is_set():
                stopped_at = stopped_at or clock()
                if clock() - stopped_at > _LAST_ANSWER_DEADLINE_S:
                    return
            await asyncio.sleep(_RETRY_AFTER_S)

    def _record(self, number: int, answer: RestAnswer) -> None:
        record = self._setup.record
        if answer.ok:
            record.answered(self.name, number, 1, SendFate.ACKNOWLEDGED)
            record.pauses.acknowledged(self.name)
        else:
            record.answered(self.name, number, 1, SendFate.REFUSED)
            self._setup.emit("error", client=self.name, error=f"HTTP {answer.status}: {answer.detail}")
