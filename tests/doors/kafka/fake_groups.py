"""Groups of one namespace with their real core, without an owner: generations are durable at once."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count

from oncelog.core.access import UNCHECKED, Caller
from oncelog.core.errors import OncelogError, PermissionDenied, TopicNotFound
from oncelog.core.groups.answers import GroupAnswer
from oncelog.core.groups.coordinator import Coordinator
from oncelog.core.groups.events import (
    Answer,
    CallAbandoned,
    CommitChecked,
    DeleteGeneration,
    GenerationDeleted,
    GenerationWritten,
    GroupEvent,
    JoinRequested,
    WriteGeneration,
)
from oncelog.core.ids import Generation
from oncelog.core.names import NamespaceName, TopicName
from oncelog_doors.kafka.ports import GroupQuestion
from tests.doors.raw_connection import ManualTimers


class FakeGroups:
    """Has the form of `GroupsPort`. Time moves by `pass_time`."""

    def __init__(self) -> None:
        self.timers = ManualTimers()
        self.coordinator: Coordinator | None = None
        #: what was asked, in order
        self.asked: list[GroupQuestion] = []
        #: questions get this error; raises of generations, this one
        self.error: OncelogError | None = None
        self.raise_error: OncelogError | None = None
        #: what was raised: (partition, group, generation), before which question
        self.raised: list[tuple[str, str, int]] = []
        #: that the partitions have
        self.highest = Generation(0)
        #: {group: whether it has offsets}
        self.offsets: set[str] = set()
        #: each question for old offsets of clients without a group
        self.unused_asked: list[tuple[NamespaceName, int]] = []
        #: unused_for_ms of each deletion
        self.deleted_with: list[int] = []
        #: roles that may use no groups
        self.denied: set[str] = set()
        self._calls = count(1)
        self._waiting: dict[int, asyncio.Future[GroupAnswer]] = {}

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    async def ask(
        self, namespace: NamespaceName, caller: Caller, question: GroupQuestion, *, timeout_ms: int
    ) -> GroupAnswer:
        if caller is not UNCHECKED and caller.role in self.denied:
            raise PermissionDenied(f"role {caller.role} may not do that")
        if self.error is not None:
            raise self.error
        self.asked.append(question)
        if self.coordinator is None:
            if not isinstance(question, JoinRequested | CommitChecked):
                raise TopicNotFound("no group was ever there")
            self.coordinator = Coordinator({}, self.timers.now_ms())
        call = next(self._calls)
        waiting: asyncio.Future[GroupAnswer] = asyncio.get_running_loop().create_future()
        self._waiting[call] = waiting
        self._handle(replace(question, call=call))
        try:
            return await waiting
        except asyncio.CancelledError:
            self._handle(CallAbandoned(call))
            raise
        finally:
            self._waiting.pop(call, None)

    def pass_time(self, ms: int) -> None:
        """The coordinator is called when it wants to be."""
        assert self.coordinator is not None
        until = self.timers.now_ms() + ms
        while (due := self.coordinator.next_due_ms) is not None and due <= until:
            self.timers.advance(max(0, due - self.timers.now_ms()))
            self._perform(self.coordinator.tick(self.timers.now_ms()))
        self.timers.advance(until - self.timers.now_ms())

    def _handle(self, event: GroupEvent) -> None:
        assert self.coordinator is not None
        self._perform(self.coordinator.handle(event, self.timers.now_ms()))

    def _perform(self, effects: Sequence[object]) -> None:
        for effect in effects:
            match effect:
                case Answer(call, answer):
                    if not self._waiting[call].done():
                        self._waiting[call].set_result(answer)
                case WriteGeneration(group, generation):
                    self._handle(GenerationWritten(group, generation))
                case DeleteGeneration(group):
                    self._handle(GenerationDeleted(group))

    async def raise_generations(
        self, logs: Sequence[TopicName], caller: Caller, group: str, generation: Generation, *, timeout_ms: int
    ) -> Generation:
        if self.raise_error is not None:
            raise self.raise_error
        self.raised += [(str(log), group, generation) for log in logs]
        return self.highest

    async def delete_offsets(
        self,
        namespace: NamespaceName,
        caller: Caller,
        group: str,
        generation: Generation,
        *,
        unused_for_ms: int,
        timeout_ms: int,
    ) -> bool:
        self.deleted_with.append(unused_for_ms)
        had = group in self.offsets
        self.offsets.discard(group)
        return had

    async def delete_unused_offsets(
        self, namespace: NamespaceName, caller: Caller, *, unused_for_ms: int, timeout_ms: int
    ) -> Mapping[str, int]:
        self.unused_asked.append((namespace, unused_for_ms))
        return {}
