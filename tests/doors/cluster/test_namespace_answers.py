"""What a door keeps of answers about namespaces. Clients choose the names, so it must have an end."""

import asyncio

import pytest

from oncelog.core.errors import ServiceUnavailable
from oncelog_doors.log_client.namespace_answers import KEPT_MAX, NamespaceAnswers
from tests.cluster.until import yield_to_loop

pytestmark = pytest.mark.asyncio

#: Seconds that no test takes.
AGE_S = 3600.0


class Asked:
    """In the place of the cluster."""

    def __init__(self) -> None:
        self.names: list[str] = []
        #: {name: its answer waits for this}
        self.held: dict[str, asyncio.Event] = {}

    async def ask(self, name: str) -> str:
        self.names.append(name)
        await yield_to_loop()  # others go on meanwhile, as while a cluster answers
        if name in self.held:
            await self.held[name].wait()
        if name == "unknown":
            raise ServiceUnavailable("it is not known now")
        return name


async def test_as_many_answers_are_kept_and_those_asked_for_last() -> None:
    asked = Asked()
    answers = NamespaceAnswers(asked.ask)
    for number in range(KEPT_MAX + 1):
        assert await answers.of(str(number), age_s=AGE_S) == str(number)
    asked.names.clear()
    assert await answers.of("1", age_s=AGE_S) == "1"
    assert asked.names == []
    assert await answers.of("0", age_s=AGE_S) == "0"
    assert asked.names == ["0"]
    # Asked for again, so it is not the oldest any more.
    assert await answers.of("2") == "2"
    await answers.of("new", age_s=AGE_S)
    asked.names.clear()
    assert await answers.of("2", age_s=AGE_S) == "2"
    assert asked.names == []


async def test_an_answer_that_others_wait_for_stays() -> None:
    """A question about a namespace waits for the one in front of it, however many others there are."""
    asked = Asked()
    answers = NamespaceAnswers(asked.ask)
    await answers.of("awaited", age_s=AGE_S)
    asked.held["awaited"] = asyncio.Event()
    first = asyncio.ensure_future(answers.of("awaited"))
    for number in range(KEPT_MAX + 1):
        await answers.of(str(number), age_s=AGE_S)
    second = asyncio.ensure_future(answers.of("awaited"))
    await answers.of("later")
    assert asked.names.count("awaited") == 2
    asked.held["awaited"].set()
    assert await first == await second == "awaited"


async def test_errors_are_dropped_as_answers() -> None:
    answers = NamespaceAnswers(Asked().ask, keeps=False)
    for _ in range(2):
        with pytest.raises(ServiceUnavailable):
            await answers.of("unknown")
    assert not answers._known
    assert not answers._asking
