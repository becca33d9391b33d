"""The overview."""

import pytest

from tests.contract.rest.console.console_world import block_of, serving, text_of

pytestmark = pytest.mark.asyncio


async def test_overview_lists_owners_with_their_call() -> None:
    """The figures are those of REST, and the call behind them can be copied."""
    async with serving() as console:
        owner = await console.admin.owner()
        page = await console.page("/console/")
        text = text_of(block_of(page, "owners"))
        assert f"{owner.address} ● live" in text
        assert f"curl http://127.0.0.1:{console.admin.port}/admin/v2/brokers" in text
