"""Rates over REST: each owner's own, and owners that do not answer are named."""

import pytest

from oncelog.wire.observation_pb2 import RatesSample
from tests.contract.rest.admin.admin_world import serving

pytestmark = pytest.mark.asyncio

RATES = "/admin/v2/rates"


async def test_rates_of_each_owner_are_shown_also_without_zookeeper() -> None:
    """Latencies that were not measured are unknown, not 0. ZooKeeper is not asked."""
    async with serving() as admin:
        one, dead = [await admin.world.owner(admin.replica) for _ in range(2)]
        await admin.replica.sees(one, dead)
        one.sampled = [
            RatesSample(at_ms=1_000, interval_ms=10_000, stored=1),
            RatesSample(at_ms=11_000, interval_ms=10_000, stored=2, publish_p50_ms=1.5, publish_p99_ms=20),
            RatesSample(at_ms=21_000, interval_ms=10_000, duplicates=3),
        ]
        await dead.stop_listening()
        admin.replica.session.faults.suspend()
        seen = await admin.get(RATES, params={"seconds": 20})
        (shown,) = seen["owners"]
        assert (shown["incarnation"], shown["address"]) == (one.incarnation, one.address)
        assert [(each["at_ms"], each["stored"], each["duplicates"]) for each in shown["samples"]] == [
            (11_000, 2, 0),
            (21_000, 0, 3),
        ]
        assert [(each["publish_p50_ms"], each["publish_p99_ms"]) for each in shown["samples"]] == [
            (1.5, 20.0),
            (None, None),
        ]
        assert [silent["incarnation"] for silent in seen["silent_owners"]] == [dead.incarnation]
        assert seen["silent_owners"][0]["reason"]
        admin.replica.session.faults.resume()


@pytest.mark.parametrize("seconds", ["0", "3601", "x", ""])
async def test_seconds_out_of_bounds_are_refused(seconds: str) -> None:
    """Owners keep an hour."""
    async with serving() as admin:
        problem = await admin.refused("GET", f"{RATES}?seconds={seconds}", 422, "invalid_argument")
        assert problem["field"] == "seconds"
