"""The route that shows how fast messages come and go at each topic owner."""

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from oncelog.core.errors import OncelogError
from oncelog.metadata.owners.owner_calls import STATES_TIMEOUT_MS
from oncelog.metadata.owners.owners import advertised_address_of
from oncelog.metadata.replica import Coordination
from oncelog.metadata.rest.routers import new_router
from oncelog.metadata.rest.values import SilentOwner, silent_owners
from oncelog.rpc.codecs.owner_codec import RATES
from oncelog.wire import observation_pb2 as pb

SECONDS_MAX = 3_600

SecondsQuery = Annotated[int, Query(description="How far back, in seconds", ge=1, le=SECONDS_MAX)]


class RatesSample(BaseModel):
    """What happened in `interval_ms` before `at_ms`."""

    at_ms: int
    interval_ms: int
    stored: int = Field(description="Messages stored")
    received_bytes: int = Field(description="Bytes of batches received, also of those that were refused")
    delivered: int = Field(description="Messages sent to consumers, also again")
    acknowledged: int = Field(
        description="Messages acknowledged, by consumers, administrators and policies, in each subscription"
    )
    duplicates: int = Field(description="Messages that were stored before, and not stored again")
    stale: int = Field(description="Messages refused because of their sequence id")
    unverified: int = Field(
        description="Messages not stored, older than what is remembered: whether they were stored before is unknown"
    )
    publish_p50_ms: float | None = Field(
        description="Half of the measured publishes took no longer, from the arrival of a frame to the answer to its "
        "first batch; null: none was measured"
    )
    publish_p99_ms: float | None = Field(description="99 of 100 measured publishes took no longer")


class OwnerRates(BaseModel):
    """One topic owner."""

    incarnation: str
    address: str
    producers: int | None = Field(description="Connected now; null: the owner does not say it")
    consumers: int | None = Field(description="Connected now")
    topics: int | None = Field(description="That it serves now")
    samples: list[RatesSample] = Field(description="The oldest first, one each 10 s, up to an hour; since its start")


class RatesView(BaseModel):
    """How fast messages come and go, by topic owner."""

    owners: list[OwnerRates]
    silent_owners: list[SilentOwner]


def routes(coordination: Coordination) -> APIRouter:
    """Show rates."""
    router = new_router(prefix="/admin/v2", tags=["cluster"])

    @router.get("/rates", summary="Show how fast messages come and go", operation_id="get_rates")
    async def get_rates(seconds: SecondsQuery = 600) -> RatesView:
        """Samples of all topics of each owner together, from its memory. ZooKeeper is not asked.

        The sum over owners is that of the cluster. Add up samples by time, not by their order: owners start at
        different times.
        """
        request = pb.RatesRequest(seconds=seconds)
        answers = await coordination.calls.ask_each(
            coordination.owners.live, RATES, request, timeout_ms=STATES_TIMEOUT_MS
        )
        return RatesView(
            owners=[
                OwnerRates(
                    incarnation=owner.incarnation,
                    address=advertised_address_of(owner),
                    producers=answer.producers if answer.HasField("producers") else None,
                    consumers=answer.consumers if answer.HasField("consumers") else None,
                    topics=answer.topics if answer.HasField("topics") else None,
                    samples=[_sample(each) for each in answer.samples],
                )
                for owner, answer in answers
                if not isinstance(answer, OncelogError)
            ],
            silent_owners=silent_owners(
                (owner, answer.message) for owner, answer in answers if isinstance(answer, OncelogError)
            ),
        )

    return router


def _sample(sample: pb.RatesSample) -> RatesSample:
    shown = {field.name: getattr(sample, field.name) for field in sample.DESCRIPTOR.fields}
    if not sample.HasField("publish_p50_ms"):
        shown["publish_p50_ms"] = shown["publish_p99_ms"] = None
    return RatesSample(**shown)
