"""The page about storage: nodes, copies over time, repair, and whether a node may be replaced."""

import pytest

from oncelog.core.ids import LedgerId
from oncelog.metadata_store.records.repair_store import (
    RepairProgress,
    RepairSample,
    RepairStore,
    RunningRepair,
    StuckRepair,
)
from tests.cluster.until import until
from tests.contract.rest.admin.test_admin_storage import DEADLINE_S, three_nodes
from tests.contract.rest.console.console_world import block_of, serving, text_of

pytestmark = pytest.mark.asyncio

STORAGE = "/console/storage"


async def test_storage_is_shown_with_nodes_copies_and_repair() -> None:
    """As the elected replica last wrote it; ledgers that lack copies are named with their topics."""
    async with serving() as console, three_nodes(console.admin) as nodes:
        topic_id = (await console.admin.world.record()).topic_id
        history = tuple(RepairSample(60_000 * n, 5 << 20, (0, 0, 9 - n, 91 + n)) for n in range(3))
        await RepairStore(nodes[0].session).write(
            RepairProgress(
                updated_ms=180_000, under_replicated=5, lost=1, queued=4, bytes_per_s=1 << 20, left_bytes=5 << 20,
                entries_by_copies=(2, 0, 7, 91), history=history,
                running=(RunningRepair(LedgerId(3), topic_id, "COPY", 40, 100, 120_000),),
                stuck=(StuckRepair(LedgerId(4), topic_id, "entries 3 to 4 have no live copy", 1),),
            )
        )  # fmt: skip
        await nodes[2].leave()
        page = await console.page(STORAGE)
        copies = block_of(page, "copies")
        text = text_of(copies)
        assert "▲ repairing 5 ledgers" in text
        assert "■ 1 ledger lost" in text
        assert "▲ 5 ledgers under-replicated" in text
        assert "left to copy 5.0 MiB rate 1.0 MiB/s time left 5 s" in text
        assert "3 91 Entries with 3 copies over the last hour, now 91" in text
        assert "2 7 Entries with 2 copies over the last hour, now 7" in text
        assert "0 2 Entries with 0 copies over the last hour, now 2" in text
        assert "3 public/default/flights copy 40 100" in text
        assert "entries 3 to 4 have no live copy" in text

        async def noticed() -> bool:
            shown = await console.page(STORAGE)
            return "■ away" in text_of(block_of(shown, "nodes")) and 'id="ledgers-under-replicated"' in shown

        await until(noticed, DEADLINE_S)
        page = await console.page(STORAGE)
        assert text_of(block_of(page, "nodes")).count("● live") == 2
        ledgers = block_of(page, "ledgers-under-replicated")
        assert "▲ under-replicated 2 of 3" in text_of(ledgers)
        assert "state=under-replicated&amp;limit=20&amp;seen_within_s=3" in ledgers, "one look for all of the page"
        assert 'href="/console/topics/public/default/flights"' in ledgers


async def test_what_waits_is_not_called_done() -> None:
    """Copies are missing, and nothing runs: why."""
    async with serving() as console, three_nodes(console.admin) as nodes:
        progress = RepairProgress(updated_ms=180_000, under_replicated=26)
        await RepairStore(nodes[0].session).write(progress)
        await nodes[2].leave()

        async def shown() -> bool:
            return "■ away" in text_of(block_of(await console.page(STORAGE), "nodes"))

        await until(shown, DEADLINE_S)
        text = text_of(block_of(await console.page(STORAGE), "copies"))
        assert "▲ waiting Nothing can be repaired now." in text
        assert "is away: its copies count again when it returns." in text
        assert "2 nodes are live and writable: if each of them is a member, add a storage node." in text
        assert "Nothing is left to repair" not in text
        assert "left to copy not known" in text


async def test_node_is_checked_for_replacement_only_when_asked() -> None:
    """The check asks every storage node."""
    async with serving() as console, three_nodes(console.admin) as nodes:
        page = await console.page(STORAGE)
        assert 'id="may-replace"' not in page
        assert "No metadata service has been elected yet." in text_of(block_of(page, "copies"))

        async def answer(number: int) -> str:
            page = await console.page(f"{STORAGE}?node={nodes[number].incarnation}")
            return text_of(block_of(page, "may-replace"))

        async def allowed() -> bool:
            return "● yes" in await answer(0)

        await until(allowed, DEADLINE_S)
        await nodes[1].leave()

        async def forbidden() -> bool:
            return "■ no" in (text := await answer(0)) and "ledger 1:" in text

        await until(forbidden, DEADLINE_S)
        wrong = text_of(block_of(await console.page(f"{STORAGE}?node=x"), "may-replace"))
        assert "an incarnation must have 32 hexadecimal digits" in wrong
