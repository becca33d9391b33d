"""One verification of a topic's fold, at its owner, in the background: `core.topic.fold_verification` decides, this
reads.

    QUEUED   another verification of this process goes on
    RUNNING  snapshot and log are read, within a limit of bytes per second
    EQUAL | DIFFERENT | FAILED | CANCELLED

A ledger that leaves the log meanwhile, by retention or behind a newer snapshot, makes it begin again, some times. It
ends with its topic at this owner: the next owner knows nothing of it.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from enum import Enum
from typing import Any
from uuid import uuid4

from oncelog.core.errors import BY_CODE, LogHole, OncelogError
from oncelog.core.formats.batch import Checksum
from oncelog.core.topic.fold_verification import (
    CompareNext,
    FoldVerification,
    VerificationEffect,
    VerificationState,
)
from oncelog.core.topic.topic import Topic
from oncelog.core.topic.wait_reasons import WaitReasons
from oncelog.runtime.observing.events import EventKind
from oncelog.storage_client.rate_limit import RateLimit
from oncelog.topic_owner.shell.effect_executor import EffectExecutor, OwnerParts

logger = logging.getLogger(__name__)

#: How often it begins at most.
ATTEMPTS_MAX = 3
RETRY_S = 0.3


class JobState(Enum):
    QUEUED = "queued"
    RUNNING = "running"
    EQUAL = "equal"
    DIFFERENT = "different"
    FAILED = "failed"
    CANCELLED = "cancelled"


class _LimitedPace:
    """So many bytes per second; a call to a storage node asks for what one second allows."""

    def __init__(self, bytes_per_s: int) -> None:
        self.call_bytes_max = bytes_per_s
        self._limit = RateLimit(bytes_per_s, now_s=time.monotonic)

    async def wait(self, count: int) -> None:
        await self._limit.wait(count)
        await asyncio.sleep(0)


class VerificationJob:
    def __init__(self, topic: Topic, parts: OwnerParts, checksum: Checksum, *, bytes_per_s: int) -> None:
        self.id = uuid4().hex
        self.bytes_per_s = bytes_per_s
        self.state = JobState.QUEUED
        #: None: the first attempt has not begun
        self.verification: FoldVerification | None = None
        self.attempts = 0
        self.error: OncelogError | None = None
        self.began_ms, self.ended_ms = _now_ms(), 0
        self._topic = topic
        self._parts = parts
        self._checksum = checksum
        self._pace = _LimitedPace(bytes_per_s)
        self._executor: EffectExecutor | None = None
        #: the end of the present attempt
        self._over: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def running(self) -> bool:
        return self.state in (JobState.QUEUED, JobState.RUNNING)

    def cancel(self) -> None:
        if self.running:
            self._end(JobState.CANCELLED)
            if self._task is not None:
                self._task.cancel()

    async def run(self) -> None:
        """Return when it is over. Cancelled when the topic ends here."""
        self._task = asyncio.current_task()
        try:
            async with self._parts.verifying:
                self.state = JobState.RUNNING
                await self._verify()
        finally:
            if self._executor is not None:
                self._executor.cancel()
            if self.running:
                self._end(JobState.CANCELLED)

    async def _verify(self) -> None:
        while True:
            self.attempts += 1
            try:
                verification = await self._attempt()
            except OncelogError as error:  # the fold of the log met what it must not: no verdict, and the owner serves
                self._fail(error)
                return
            failure = verification.failure
            if failure is None:
                self._decide(verification)
                return
            if failure.code != LogHole.code or self.attempts == ATTEMPTS_MAX:
                self._fail(BY_CODE.get(failure.code, LogHole)(failure.reason))
                return
            logger.info("the verification of topic %s begins again: %s", self._name, failure.reason)
            await asyncio.sleep(RETRY_S)

    async def _attempt(self) -> FoldVerification:
        self._over = asyncio.get_running_loop().create_future()
        topic_id = self._topic.ownership.topic_id
        executor = EffectExecutor(topic_id, self._parts, self._post, WaitReasons(self._topic), self._pace)
        if self._executor is not None:
            self._executor.cancel()
        self._executor = executor
        verification = self.verification = FoldVerification(self._topic, self._perform, self._checksum)
        verification.start()
        self._look()
        await self._over
        return verification

    # --- events and effects -------------------------------------------------------------------------------------------

    def _post(self, event: Any) -> None:
        self._step(lambda verification: verification.handle(event))

    def _step(self, do: Callable[[FoldVerification], None]) -> None:
        over = self._over
        if self.verification is None or over is None or over.done():
            return
        try:
            self.verification.require_current()
            do(self.verification)
        except OncelogError as error:
            over.set_exception(error)
        else:
            self._look()

    def _look(self) -> None:
        """End the attempt once the core has."""
        verification, over = self.verification, self._over
        ended = (VerificationState.DONE, VerificationState.FAILED)
        if verification is not None and verification.state in ended and over is not None and not over.done():
            over.set_result(None)

    def _perform(self, effect: VerificationEffect) -> None:
        if self._executor is None:
            return
        if isinstance(effect, CompareNext):
            self._executor.start(self._compare_next(effect.compared_bytes))
        else:
            self._executor.performers[type(effect)](effect)

    async def _compare_next(self, compared_bytes: int) -> None:
        await self._pace.wait(compared_bytes)
        self._step(FoldVerification.compare_next)

    # --- the end ------------------------------------------------------------------------------------------------------

    @property
    def _name(self) -> str:
        return self._topic.ownership.record.name

    def _decide(self, verification: FoldVerification) -> None:
        if not verification.differences_count and not verification.ack_differences_count:
            self._end(JobState.EQUAL)
            return
        self._end(JobState.DIFFERENT)
        self._parts.metrics.counts.event("fold_differs")
        for each in verification.differences:
            message = "topic %s: producer %r (%d): %s is %s at its owner, but %s by snapshot and log"
            logger.error(message, self._name, each.producer, each.producer_id, each.field, each.found, each.expected)
        for ack in verification.ack_differences:
            message = "topic %s: subscription %r: %s is %s at its owner, but %s by snapshot and ack log"
            logger.error(message, self._name, ack.subscription, ack.field, ack.found, ack.expected)

    def _fail(self, error: OncelogError) -> None:
        self.error = error
        self._end(JobState.FAILED)

    def _end(self, state: JobState) -> None:
        self.state, self.ended_ms = state, _now_ms()
        if state is not JobState.CANCELLED:
            level, error = "info" if state is JobState.EQUAL else "error", self.error
            self._parts.metrics.events.note(
                EventKind.VERIFICATION, logger, "the verification of a fold has ended", level=level, topic=self._name,
                result=state.value, reason=None if error is None else error.message,
            )  # fmt: skip


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
