"""Routes of the online proof of a topic: ask for one, look at its progress and its verdict, cancel it; and the list of
all proofs. For admins of the namespace; the list for superusers."""

import asyncio
from dataclasses import asdict
from typing import Annotated, Self

from fastapi import APIRouter, Body, Query
from pydantic import BaseModel, ConfigDict, Field

from oncelog.core.access import Right
from oncelog.core.errors import CorruptEntry
from oncelog.core.ids import TopicId
from oncelog.core.names import TopicName
from oncelog.metadata.replica import Coordination
from oncelog.metadata.rest.access import CallerOfRequest, requires
from oncelog.metadata.rest.routers import new_router
from oncelog.metadata.rest.values import TopicPath
from oncelog.metadata.topics.topic_lookup import require_unpartitioned
from oncelog.verify.proof import FormerVerdict, PartProof, TopicProof
from oncelog.verify.proof_turns import BYTES_PER_S_MIN, CPU_PERCENT_MIN

_PATH = "/admin/v2/persistent/{tenant}/{namespace}/{topic}/proof"
#: Where a request states none: some percent of the disks and of a core.
BYTES_PER_S, CPU_PERCENT = 4 * 1024 * 1024, 20
PAGE_MAX = 1_000
_READS_MAX = 64

LimitQuery = Annotated[int, Query(description="Topics of this page", ge=1, le=PAGE_MAX)]
AfterQuery = Annotated[str | None, Query(description="`next_after` of the page before", max_length=100)]


class ProofLimits(BaseModel):
    """How fast a proof reads."""

    model_config = ConfigDict(extra="forbid")

    bytes_per_second: int = Field(
        default=BYTES_PER_S,
        ge=BYTES_PER_S_MIN,
        le=1 << 30,
        description="From each storage node, and at the topic owner",
    )
    cpu_percent: int = Field(
        default=CPU_PERCENT, ge=CPU_PERCENT_MIN, le=100, description="Of one core of the metadata service"
    )


class ProofFindingView(BaseModel):
    """A rule that is broken."""

    rule: str
    position: str | None = Field(description="ledger:entry; null: of the topic as a whole")
    message: str = Field(description="What each side says: copies with their checksums, or log and owner")


class ProofPartView(BaseModel):
    """One part of a proof."""

    part: str = Field(
        description="end: the range is found. once: no message is stored twice, the log follows from itself, and its "
        "owner and the newest snapshot have its producers. "
        "copies: each entry is on the ack quorum of storage nodes, with equal checksums. fold: snapshot and log give "
        "the producers that the owner has. acks: snapshot and ack log give its subscriptions"
    )
    state: str = Field(description="waiting, running or done")
    unit: str = Field(description="What `done` and `of` count: entries, ledgers, producers or subscriptions")
    done: int
    of: int
    thin: int = Field(
        description="Of copies: entries that the ack quorum has, and that another member lacks: repair adds them"
    )
    findings_count: int
    findings: list[ProofFindingView] = Field(description="the first 20")
    not_checked_count: int
    not_checked: list[str] = Field(description="What was not read, and why: the first 20")

    @classmethod
    def of_part(cls, part: PartProof) -> Self:
        found = [
            ProofFindingView(rule=each.rule, position=each.position or None, message=each.message)
            for each in part.findings
        ]
        return cls(
            part=part.part.value, state=part.state.value, unit=part.unit, done=part.done, of=part.of, thin=part.thin,
            findings_count=part.findings_count, findings=found, not_checked_count=part.not_checked_count,
            not_checked=list(part.not_checked),
        )  # fmt: skip


class FormerVerdictView(BaseModel):
    """A verdict that a newer one has replaced. Of more than 20, the oldest ones without a finding are forgotten."""

    state: str = Field(description="proved, failed, incomplete or cancelled")
    by: str
    began_ms: int | None
    ended_ms: int
    from_index: int
    until_index: int
    findings_count: int
    not_checked_count: int
    finding: str | None = Field(description="The first finding, with its position; null: none")

    @classmethod
    def of(cls, former: FormerVerdict) -> Self:
        fields = asdict(former) | {"began_ms": former.began_ms or None, "finding": former.finding or None}
        return cls(**fields | {"state": former.state.value})


class ProofView(BaseModel):
    """A proof that is asked for, goes on, or has ended. It says nothing about messages outside of its range."""

    topic: str
    topic_id: str
    state: str = Field(
        description="queued, running; or its end: proved (all parts were read to their end, without a finding), failed "
        "(at least one finding), incomplete (no finding, but something was not checked), cancelled"
    )
    cancelling: bool = Field(description="It goes on, and was asked to end")
    by: str = Field(description="Role that asked for it")
    replica: str | None = Field(description="Metadata service that works on it")
    began: int = Field(description="How often it has begun: above 1 after a restart of a metadata service")
    asked_ms: int = Field(description="Milliseconds since 1970, as all times")
    began_ms: int | None
    updated_ms: int | None = Field(description="When its progress was written")
    ended_ms: int | None
    from_index: int = Field(description="Index of the first message of the range; older ones were deleted before")
    until_index: int = Field(description="Index of the first message behind the range")
    end: str | None = Field(description="ledger:entry of the last entry of the range; null: not known, or none")
    entries: int = Field(description="Entries of the range")
    bytes_per_second: int
    cpu_percent: int
    findings_count: int
    not_checked_count: int
    parts: list[ProofPartView]
    former: list[FormerVerdictView] = Field(description="Verdicts before this one, the newest first")

    @classmethod
    def of(cls, proof: TopicProof) -> Self:
        return cls(
            topic=proof.topic, topic_id=proof.topic_id, state=proof.state.value,
            cancelling=proof.cancel and not proof.ended, by=proof.by, replica=proof.replica or None, began=proof.began,
            asked_ms=proof.asked_ms, began_ms=proof.began_ms or None, updated_ms=proof.updated_ms or None,
            ended_ms=proof.ended_ms or None, from_index=proof.from_index, until_index=proof.until_index,
            end=proof.end or None, entries=proof.entries, bytes_per_second=proof.bytes_per_second,
            cpu_percent=proof.cpu_percent, findings_count=proof.findings_count,
            not_checked_count=sum(each.not_checked_count for each in proof.parts),
            parts=list(map(ProofPartView.of_part, proof.parts)),
            former=list(map(FormerVerdictView.of, proof.former)),
        )  # fmt: skip


class TopicProofs(BaseModel):
    """The proofs of one topic."""

    topic: str
    topic_id: str
    going: ProofView | None = Field(description="Asked for, or going on; null: none")
    verdict: ProofView | None = Field(description="The newest one that has ended; null: none")


class TopicProofsNow(TopicProofs):
    """The proofs of one topic, beside its end."""

    next_index: int | None = Field(description="Index of the next message of the topic; null: no owner says it")
    behind: int | None = Field(description="Messages behind the verdict's range, which it says nothing about")


class ProofPage(BaseModel):
    """Topics that have a proof, by topic id."""

    proofs: list[TopicProofs]
    next_after: str | None = Field(description="null: this is the last page")
    unreadable: list[str] = Field(description="Topic ids of this page with a record that cannot be read")


def routes(coordination: Coordination) -> APIRouter:
    router = new_router(tags=["topics"])
    _add_topic(router, coordination)

    @router.get("/admin/v2/proofs", summary="List the proofs of all topics", operation_id="list_proofs")
    async def list_proofs(limit: LimitQuery = 100, after: AfterQuery = None) -> ProofPage:
        """The one that goes on and the newest verdict, of each topic that has any. For superusers."""
        store = coordination.proofs.store
        known = sorted({*await store.topics_with_proofs(), *await store.topics_with_verdicts()})
        rest = [one for one in known if after is None or one > after]
        page = ProofPage(proofs=[], next_after=rest[limit - 1] if len(rest) > limit else None, unreadable=[])
        for start in range(0, min(limit, len(rest)), _READS_MAX):
            some = rest[start : min(start + _READS_MAX, limit)]
            for topic_id, found in zip(some, await asyncio.gather(*map(read, some)), strict=True):
                if isinstance(found, TopicProofs):
                    page.proofs.append(found)
                elif isinstance(found, CorruptEntry):
                    page.unreadable.append(topic_id)
        return page

    async def read(topic_id: TopicId) -> TopicProofs | CorruptEntry | None:
        """None: both records have gone meanwhile."""
        try:
            going, verdict = await _of(coordination, topic_id)
        except CorruptEntry as error:
            return error
        known = going or verdict
        return (
            None if known is None else TopicProofs(topic=known.topic, topic_id=topic_id, going=going, verdict=verdict)
        )

    return router


def _add_topic(router: APIRouter, coordination: Coordination) -> None:
    admin = [requires(Right.ADMIN)]

    @router.get(_PATH, summary="Show the proof of a topic", operation_id="get_proof", dependencies=admin)
    async def get_proof(topic: TopicPath) -> TopicProofsNow:
        """The progress of a proof that goes on, the newest verdict, and how many messages are behind its range now. Of
        a partitioned topic: ask for one of its partitions."""
        return await _now(coordination, topic, await _topic_id(coordination, topic))

    @router.post(_PATH, summary="Begin to prove a topic", operation_id="prove_topic", dependencies=admin)
    async def prove_topic(
        topic: TopicPath, caller: CallerOfRequest, limits: Annotated[ProofLimits | None, Body()] = None
    ) -> ProofView:
        """Prove in the background that each message of the topic is stored once, that each entry is on enough disks
        with equal checksums, and that a takeover would come to the producers and subscriptions that the owner has.

        A proof that is asked for or goes on is joined. It ends with a verdict about what it has read, which stays with
        the topic.
        """
        wanted = limits or ProofLimits()
        return ProofView.of(
            await coordination.proofs.ask(
                topic, by=caller.role, bytes_per_second=wanted.bytes_per_second, cpu_percent=wanted.cpu_percent
            )
        )

    @router.delete(_PATH, summary="Cancel the proof of a topic", operation_id="cancel_proof", dependencies=admin)
    async def cancel_proof(topic: TopicPath) -> TopicProofsNow:
        """A proof that waits ends at once. One that goes on ends within seconds, as cancelled; what it has found until
        then makes it failed. If none goes on, nothing changes."""
        topic_id = await _topic_id(coordination, topic)
        await coordination.proofs.cancel(topic_id)
        return await _now(coordination, topic, topic_id)


async def _now(coordination: Coordination, topic: TopicName, topic_id: TopicId) -> TopicProofsNow:
    (going, verdict), end = await asyncio.gather(_of(coordination, topic_id), coordination.proofs.end_of(topic))
    following = end.next_index if end is not None and end.topic_id == topic_id else None
    behind = None if verdict is None or following is None else max(0, following - verdict.until_index)
    return TopicProofsNow(
        topic=str(topic), topic_id=topic_id, going=going, verdict=verdict, next_index=following, behind=behind
    )


async def _topic_id(coordination: Coordination, topic: TopicName) -> TopicId:
    found = await coordination.lookup.find(topic)
    require_unpartitioned(topic, found.partitions)
    return found.topic_id


async def _of(coordination: Coordination, topic_id: TopicId) -> tuple[ProofView | None, ProofView | None]:
    """(the proof that goes on, the newest verdict). The verdict is read last: it replaces the proof that goes on."""
    going = await coordination.proofs.store.proof(topic_id)
    verdict = await coordination.proofs.store.verdict(topic_id)
    return None if going is None else ProofView.of(going.value), None if verdict is None else ProofView.of(verdict)
