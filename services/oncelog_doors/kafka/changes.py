"""The parts of one request of an administrator: each has an outcome of its own, and all of them one deadline."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

from oncelog.core.errors import OncelogError
from oncelog.core.names import NamespaceName, TopicName
from oncelog_doors.core.kafka.administration_codes import Refused, refused_for
from oncelog_doors.core.kafka.error_codes import ErrorCode
from oncelog_doors.core.kafka.topic_names import topic_of
from oncelog_doors.kafka.codec import Body

#: Of one request at the same time.
_AT_ONCE = 20
#: What clients may ask for: 0 would mean that nothing is ever known, and clients themselves wait 60 s at most.
TIMEOUT_MS_MIN, TIMEOUT_MS_MAX = 1_000, 30_000
T = TypeVar("T")


class Changes:
    """Of one request. timeout_ms: what the client asks for."""

    def __init__(self, timeout_ms: int = TIMEOUT_MS_MAX) -> None:
        limit_ms = min(max(timeout_ms, TIMEOUT_MS_MIN), TIMEOUT_MS_MAX)
        self._until_s = asyncio.get_running_loop().time() + limit_ms / 1000
        self._places = asyncio.Semaphore(_AT_ONCE)

    @property
    def left_ms(self) -> int:
        """At least 1."""
        return max(1, int((self._until_s - asyncio.get_running_loop().time()) * 1000))

    async def result(self, ask: Callable[[], Awaitable[T]]) -> T | Refused:
        """The result of one part, or why there is none."""
        try:
            async with asyncio.timeout_at(self._until_s), self._places:
                return await ask()
        except TimeoutError:
            sentence = "the cluster has not answered in time; the change may still happen: look, and ask again"
            return Refused(ErrorCode.REQUEST_TIMED_OUT, sentence)
        except OncelogError as error:
            return refused_for(error)
        except Refused as refused:
            return refused

    async def outcome(self, ask: Callable[[], Awaitable[None]]) -> Body:
        """The fields of an answer that say what became of one part."""
        return outcome_of(await self.result(ask))


def outcome_of(result: object) -> Body:
    if isinstance(result, Refused):
        return {"error_code": result.code, "error_message": result.sentence}
    return {"error_code": ErrorCode.NONE, "error_message": None}


async def each_topic(
    names: Sequence[str], namespace: NamespaceName, answer: Callable[[str, TopicName | Refused], Awaitable[Body]]
) -> list[Body]:
    """The answers for the topics of one request, one for each name. A topic that is named twice, perhaps in two forms,
    and a name that is not valid are refused."""
    found = {name: _topic(name, namespace) for name in dict.fromkeys(names)}
    count = Counter(str(found[name]) for name in names if isinstance(found[name], TopicName))
    for name, topic in found.items():
        if isinstance(topic, TopicName) and count[str(topic)] > 1:
            found[name] = Refused(ErrorCode.INVALID_REQUEST, f"topic {topic} is named {count[str(topic)]} times")
    return list(await asyncio.gather(*(answer(name, topic) for name, topic in found.items())))


def _topic(name: str, namespace: NamespaceName) -> TopicName | Refused:
    try:
        return topic_of(name, namespace)
    except OncelogError as error:
        return refused_for(error)


def accepted(topic: TopicName | Refused) -> TopicName:
    """Raises Refused."""
    if isinstance(topic, Refused):
        raise topic
    return topic


def first_of_each(bodies: Iterable[Body], field: str = "name") -> dict[str, Body]:
    """{name: its first element}."""
    found: dict[str, Body] = {}
    for each in bodies:
        found.setdefault(each[field], each)
    return found
