"""Requests to REST of the cluster on behalf of the callers of a door."""

import pytest

from oncelog.client.client import AsyncClient
from oncelog.core.errors import ServiceUnavailable, Unauthenticated
from oncelog.runtime.port_claim import claim_port, port_of
from oncelog_doors.log_client.forwarded_rest import ForwardedRest


@pytest.mark.asyncio
async def test_cluster_that_is_away_is_reported_at_once() -> None:
    """The caller repeats the request, and not the door: it may be answered meanwhile by another one."""
    with claim_port("127.0.0.1") as claim:
        async with AsyncClient(f"oncelog://127.0.0.1:{port_of(claim)}") as client:
            with pytest.raises(ServiceUnavailable):
                await ForwardedRest(client).ask("GET", "/admin/v2/tenants", b"", headers={}, authorization="Bearer x")


@pytest.mark.asyncio
@pytest.mark.parametrize("authorization", ["Bearer ä", "Bearer \x00", "Bearer " + "x" * 8_192])
async def test_header_that_is_no_token_is_refused_here(authorization: str) -> None:
    """gRPC would fail on it."""
    async with AsyncClient("oncelog://127.0.0.1:1") as client:
        with pytest.raises(Unauthenticated):
            await ForwardedRest(client).ask("GET", "/admin/v2/tenants", b"", headers={}, authorization=authorization)
