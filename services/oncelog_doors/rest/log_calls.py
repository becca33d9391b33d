"""What a route needs that asks the log with the rights of the door: who calls, the topic, and an answer in time."""

import asyncio
from collections.abc import Awaitable
from typing import Annotated, TypeVar

from fastapi import Depends, Request

from oncelog.core.access import Caller
from oncelog.core.names import TopicName
from oncelog.runtime.security import Security
from oncelog_doors.core.pulsar.names import topic_of
from oncelog_doors.core.pulsar.server_errors import Refusal
from oncelog_doors.core.rest.refusals import RETRY_AFTER_S, Refused
from oncelog_doors.rest.ports import LogPort

ResultT = TypeVar("ResultT")
#: Clients wait 60 s for an answer, and longer for one that has begun.
ANSWER_S = 25.0


async def in_time(answer: Awaitable[ResultT]) -> ResultT:
    """Raises Refused without an answer in time: an owner may be away for as long as it takes."""
    try:
        async with asyncio.timeout(ANSWER_S):
            return await answer
    except TimeoutError as error:
        sentence = f"the cluster has not answered in {ANSWER_S:g} s: ask again. A change may have been made"
        raise Refused(504, sentence, RETRY_AFTER_S) from error


async def _caller(request: Request) -> Caller:
    """Raises Unauthenticated."""
    security: Security = request.app.state.security
    return security.caller(request.headers.get("authorization"))


async def _topic(request: Request) -> TopicName:
    """Raises Refused."""
    parts = request.path_params
    found = topic_of("/".join(parts[name] for name in ("tenant", "namespace", "topic")))
    if isinstance(found, Refusal):
        raise Refused(412, found.sentence)
    return found


async def _log(request: Request) -> LogPort:
    log: LogPort = request.app.state.log
    return log


CallerOf = Annotated[Caller, Depends(_caller)]
TopicOf = Annotated[TopicName, Depends(_topic)]
LogOf = Annotated[LogPort, Depends(_log)]
