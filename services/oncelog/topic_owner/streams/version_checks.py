"""Whether a topic may get its first subscription, its first effects, or its first batch of a newer compression: all
processes must know what its logs then contain (hazards older-owner-and-ack-log and older-owner-and-codecs)."""

import asyncio
import time

from oncelog.core.errors import ServiceUnavailable, StoreUnavailable
from oncelog.core.formats.topic_record import FORMAT_WITH_CODECS, FORMAT_WITH_EFFECTS
from oncelog.core.process_version import ACKS_VERSION, CODECS_VERSION, EFFECTS_VERSION, LEASES_VERSION
from oncelog.metadata_store.records.ledger_store import LedgerStore
from oncelog.topic_owner.shell.topic_runner import TopicRunner

#: Named in the error; the rest is counted.
NAMED_MAX = 5
#: See CodecCheck.
ASKED_EVERY_S = 1.0
#: See AddressCheck.
ADDRESSES_ASKED_EVERY_S = 60.0


async def until_acks_are_known(runner: TopicRunner) -> None:
    """Return once the topic has an ack log, or all registered processes know what one is.

    An older owner could not serve the topic again, and an older storage node would erase ledgers of the chain.
    Raises ServiceUnavailable, which names the older processes; StoreUnavailable.
    """
    serving = runner.core.serving
    if serving is None or not serving.acks.state.ever_used:
        _refuse(runner, await runner.parts.ledgers.older_than(ACKS_VERSION), "subscription", "subscriptions")


async def until_effects_are_known(runner: TopicRunner) -> None:
    """Return once the topic has effects, or all registered processes know what they are. Raises the same."""
    if runner.core.ownership.record.format < FORMAT_WITH_EFFECTS:
        _refuse(runner, await runner.parts.ledgers.older_than(EFFECTS_VERSION), "store of effects", "effects")


async def until_leases_are_known(runner: TopicRunner) -> None:
    """Return once the topic's log counts time, or all registered processes know leases. Raises the same."""
    serving = runner.core.serving
    if serving is None or not serving.log.table.state.time_ms:
        _refuse(runner, await runner.parts.ledgers.older_than(LEASES_VERSION), "lease", "leases")


class AddressCheck:
    """Whether grants may say from where they were asked for: every registered process must be able to read it. An
    owner asks before it serves, so that also its first grant says it. An opening never waits for that: while an older
    process is there, the registry is read in the background, once a minute."""

    def __init__(self) -> None:
        self._known = False
        self._asked_s: float | None = None
        self._asking: asyncio.Task[None] | None = None

    def known(self, runner: TopicRunner) -> bool:
        """False: it is not, or not known yet."""
        serving = runner.core.serving
        if self._known or (serving is not None and serving.log.table.state.time_ms):
            return True
        if self._asked_s is None or time.monotonic() - self._asked_s >= ADDRESSES_ASKED_EVERY_S:
            self._asking = asyncio.get_running_loop().create_task(self.ask(runner.parts.ledgers))
        return False

    async def ask(self, ledgers: LedgerStore) -> None:
        """Read the registry once. While ZooKeeper does not answer, the next opening asks again."""
        self._asked_s = time.monotonic()
        try:
            self._known = not await ledgers.older_than(LEASES_VERSION)
        except StoreUnavailable:
            self._asked_s = None


class CodecCheck:
    """For all producers of one process. During an upgrade each of them sends its refused batch again and again, so one
    refusal counts for all that ask within ASKED_EVERY_S, and the registry is not read for each."""

    def __init__(self) -> None:
        self._one_at_a_time = asyncio.Lock()
        self._asked_s = 0.0
        #: the older processes; empty: none, or not read yet
        self._answer: list[str] | StoreUnavailable = []

    async def until_known(self, runner: TopicRunner) -> None:
        """Return once the topic has batches compressed by Zstandard or LZ4 or messages in chunks, or all registered
        processes know them. Raises the same."""
        if runner.core.ownership.record.format >= FORMAT_WITH_CODECS:
            return
        async with self._one_at_a_time:
            if not self._answer or time.monotonic() - self._asked_s >= ASKED_EVERY_S:
                try:
                    self._answer = await runner.parts.ledgers.older_than(CODECS_VERSION)
                except StoreUnavailable as error:
                    self._answer = error
                self._asked_s = time.monotonic()
            answer = self._answer
        if isinstance(answer, StoreUnavailable):
            raise StoreUnavailable(answer.message) from answer
        _refuse(runner, answer, "batch compressed by zstd or lz4, or in chunks", "such batches")


def _refuse(runner: TopicRunner, older: list[str], wanted: str, known: str) -> None:
    if older:
        named = ", ".join(older[:NAMED_MAX])
        rest = f" and {len(older) - NAMED_MAX} more" if len(older) > NAMED_MAX else ""
        raise ServiceUnavailable(
            f"topic {runner.name} gets no {wanted} before all processes know {known}: upgrade {named}{rest}"
        )
