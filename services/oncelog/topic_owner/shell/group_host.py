"""Runs the coordinator of a namespace's groups (`core.groups`) while this owner serves their topic.

Members live in memory. The generation of a group is that of the subscription with its name, so the next owner of the
topic goes on behind it. A call that the coordinator answers later waits here. When the topic leaves this owner, each
waiting call gets an error after which its door asks the next owner.
"""

import asyncio
import time
from collections.abc import Iterable
from dataclasses import replace
from itertools import count
from typing import assert_never

from oncelog.core.delivery import events as delivery
from oncelog.core.delivery.group_offsets.events import GenerationRaiseRequested
from oncelog.core.errors import InvariantViolated, NotOwner, OncelogError, SubscriptionNotFound
from oncelog.core.groups.answers import GroupAnswer
from oncelog.core.groups.coordinator import Coordinator
from oncelog.core.groups.events import (
    Answer,
    CallAbandoned,
    DeleteGeneration,
    DeletionFailed,
    GenerationDeleted,
    GenerationFailed,
    GenerationWritten,
    GroupEffect,
    GroupEvent,
    WriteGeneration,
)
from oncelog.core.topic.serving import Serving
from oncelog.rpc.codecs.group_codec import GroupQuestion
from oncelog.topic_owner.shell.topic_runner import TopicRunner


class GroupHost:
    """Of one topic, from one takeover on."""

    def __init__(self, runner: TopicRunner, serving: Serving) -> None:
        self._runner = runner
        #: of this takeover; the topic has another one after the next takeover, also at the same owner
        self.serving = serving
        states = [each.state for each in serving.subscriptions]
        generations = {state.name: state.generation for state in states if state.generation > 0}
        self._core = Coordinator(generations, _now_ms())
        self._numbers = count(1)
        #: {call: its answer}, of those that wait
        self._calls: dict[int, asyncio.Future[GroupAnswer]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._due_ms = 0
        self._ended: OncelogError | None = None

    async def ask(self, question: GroupQuestion) -> GroupAnswer:
        """Return the coordinator's answer, which may come minutes later. Cancelling the call withdraws it; the member
        stays. Raises NotOwner, TopicLoading when the topic leaves this owner."""
        if self._ended is not None:
            raise self._ended
        call = next(self._numbers)
        answer: asyncio.Future[GroupAnswer] = asyncio.get_running_loop().create_future()
        self._calls[call] = answer
        try:
            self._handle(replace(question, call=call))
            return await answer
        except asyncio.CancelledError:
            if self._ended is None:
                self._handle(CallAbandoned(call))
            raise
        finally:
            self._calls.pop(call, None)

    def end(self, error: OncelogError) -> None:
        """The topic is not served here any more, or was taken over again. Each waiting call gets the error."""
        if self._ended is not None:
            return
        self._ended = error
        if self._timer is not None:
            self._timer.cancel()
        for answer in self._calls.values():
            if not answer.done():
                answer.set_exception(error)

    # --- the core -----------------------------------------------------------------------------------------------------

    def _handle(self, event: GroupEvent) -> None:
        self._perform(self._core.handle(event, _now_ms()))

    def _tick(self) -> None:
        self._timer = None
        self._perform(self._core.tick(_now_ms()))

    def _perform(self, effects: Iterable[GroupEffect]) -> None:
        for effect in effects:
            match effect:
                case Answer(call, answer):
                    waiting = self._calls.get(call)
                    if waiting is not None and not waiting.done():
                        waiting.set_result(answer)
                case WriteGeneration():
                    self._runner.start(self._write(effect))
                case DeleteGeneration():
                    self._runner.start(self._delete(effect))
                case _:
                    assert_never(effect)
        self._arm()

    def _arm(self) -> None:
        """Earlier than needed is harmless: the timer is set again then."""
        due_ms = self._core.next_due_ms
        if due_ms is None or (self._timer is not None and self._due_ms <= due_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._due_ms = due_ms
        after_s = max(0, due_ms - _now_ms()) / 1000
        self._timer = asyncio.get_running_loop().call_later(after_s, self._tick)

    # --- its effects --------------------------------------------------------------------------------------------------

    async def _write(self, effect: WriteGeneration) -> None:
        group, generation = effect.group, effect.generation
        request = GenerationRaiseRequested(0, group, generation, create=True)
        try:
            raised = await self._runner.consumers.administer(request)
        except InvariantViolated:
            raise
        except NotOwner as error:
            self.end(error)
        except OncelogError as error:
            self._finished(GenerationFailed(group, generation, error))
        else:
            self._runner.parts.metrics.counts.event("group_generation")
            self._finished(GenerationWritten(group, raised))

    async def _delete(self, effect: DeleteGeneration) -> None:
        group = effect.group
        try:
            await self._runner.consumers.administer(delivery.DeleteRequested(0, group, force=False))
        except InvariantViolated:
            raise
        except SubscriptionNotFound:
            self._finished(GenerationDeleted(group))
        except OncelogError as error:
            self._finished(DeletionFailed(group, error))
        else:
            self._finished(GenerationDeleted(group))

    def _finished(self, outcome: GroupEvent) -> None:
        if self._ended is None:
            self._handle(outcome)


def _now_ms() -> int:
    return int(time.monotonic() * 1000)
