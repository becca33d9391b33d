"""A page of a list of ledgers, and the record of a deletion, are rebuilt although the topic's record is sound."""

from dataclasses import replace
from pathlib import Path

import pytest

from oncelog.core.errors import NotFound
from oncelog.core.formats.ledger_page import ListPage, PagedLedger, PageLink, decode_page, encode_page
from oncelog.core.formats.topic_record import decode_topic, encode_topic
from oncelog.core.ids import EntryId, LedgerId, Position
from oncelog.core.retention.paging import PageSettings
from oncelog.metadata.rest.recovering.records import view_of
from oncelog.metadata.restore import one_record, performer
from oncelog.metadata.restore.progress import RestoreState
from oncelog.metadata.restore.record_rebuild import RebuiltRecord
from oncelog.metadata_store.records.deletion_store import Deletion, decode_deletion, encode_deletion
from oncelog.metadata_store.session import paths
from tests.contract.restore.restoring_world import NAME, TOPIC, restoring_world
from tests.contract.restore.test_record_rebuild import ERA, GARBAGE, TOPIC_PATH, Rebuilding, rebuilding

pytestmark = [pytest.mark.asyncio, pytest.mark.hazard("unreadable-record")]
#: The ledgers 2 and 4, of which 2 was trimmed since; and as it was written.
PAGE = ListPage((PagedLedger(LedgerId(2), 0, 70, 1_000), PagedLedger(LedgerId(4), 0, 0, 2_000)))
WHOLE = ListPage(PAGE.ledgers[1:])


async def paged(one: Rebuilding, page: ListPage, link: PageLink | None) -> str:
    """The topic links this page, and lists only ledger 9 itself. Returns the path of the page."""
    assert link is not None
    node = await one.node(TOPIC_PATH)
    record = decode_topic(node.data)
    changed = replace(record, pages=(link,), ledgers=record.ledgers[1:])
    await one.tree.write(TOPIC_PATH, encode_topic(changed), version=node.version)
    path = paths.page(TOPIC, page.name)
    await one.tree.ensure_path(paths.pages(TOPIC))
    await one.tree.create(path, encode_page(page))
    return path


@pytest.mark.parametrize("page", [PAGE, WHOLE], ids=["trimmed", "whole"])
@pytest.mark.parametrize("missing", [False, True])
async def test_page_is_rebuilt_as_its_link_says(page: ListPage, missing: bool, tmp_path: Path) -> None:
    """From the heads of its ledgers. The topic's record is sound: its owner keeps it."""
    async with rebuilding(tmp_path) as one:
        link = page.link_behind(LedgerId(2))
        path = await paged(one, page, link)
        before = await one.node(TOPIC_PATH)
        if missing:
            await one.remove(path)
        else:
            await one.damage(path)
        done = await one.rebuild(path)
        assert (list(done.records), done.owner_epoch) == ([path], 0)
        rebuilt = decode_page((await one.node(path)).data)
        assert rebuilt.link_behind(LedgerId(2)) == link
        assert rebuilt.name == page.name
        assert await one.node(TOPIC_PATH) == before
        assert "can be read" in await one.refusal(path)


async def test_page_of_a_damaged_topic_is_rebuilt_with_it(tmp_path: Path) -> None:
    """The topic's record says what its pages are, so it comes first, and nothing else is left then."""
    async with rebuilding(tmp_path) as one:
        path = await paged(one, WHOLE, WHOLE.link)
        await one.damage(path)
        await one.damage(TOPIC_PATH)
        assert f"{TOPIC_PATH}, cannot be read either: rebuild it, and its pages with it" in await one.refusal(path)
        await one.rebuild(TOPIC_PATH)
        assert one.record(TOPIC_PATH)["ledgers"] == [[4, 0], [9, 0]]
        assert "links no page of this name" in await one.refusal(path, NotFound)


async def test_page_of_which_nodes_lack_a_ledger_is_not_guessed(tmp_path: Path) -> None:
    async with rebuilding(tmp_path) as one:
        path = await paged(one, PAGE, PAGE.link)
        await one.damage(path)
        assert "has 2 ledgers, 2 to 4, and storage nodes show 1 of them" in await one.refusal(path, accept=True)
        assert (await one.node(path)).data == GARBAGE


async def test_page_that_a_copy_has_is_that_of_the_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the times at which its ledgers ended, which no head says. The restore has had nodes keep the copy."""
    for module in (performer, one_record):
        monkeypatch.setattr(module, "PageSettings", lambda: PageSettings(1, 1))
    async with restoring_world(tmp_path) as world:
        await world.note_cluster()
        await world.write(4, 3, to=world.nodes)
        await world.write(9, 2, former=Position(LedgerId(4), EntryId(3)), to=world.nodes)
        assert (await world.restore()).state is RestoreState.DONE
        one, path = Rebuilding(world), paths.page(TOPIC, LedgerId(4))
        before = (await one.node(path)).data
        await one.damage(path)
        await one.damage(TOPIC_PATH)
        await one.rebuild(TOPIC_PATH)
        sound = (await one.node(path)).data
        assert sound != GARBAGE, "a copy has the same page, and ZooKeeper does not"
        await one.damage(path)
        await one.rebuild(path)
        assert (await one.node(path)).data == before


async def test_deletion_goes_on_with_what_storage_nodes_have_of_the_topic(tmp_path: Path) -> None:
    """Without its record nothing would ever end it, and the name of a partitioned topic would stay taken."""
    async with rebuilding(tmp_path) as one:
        path = paths.deletion(TOPIC)
        assert "missing once it has ended" in await one.refusal(path)
        begun = Deletion(TOPIC, NAME, 0, None, (LedgerId(4), LedgerId(9)), LedgerId(9))
        await one.tree.create(paths.tombstone(TOPIC), b"")
        await one.tree.create(path, encode_deletion(begun))
        assert "can be read" in await one.refusal(path)
        await one.damage(path)
        await one.rebuild(path)
        assert decode_deletion(TOPIC, (await one.node(path)).data) == begun


async def test_tombstone_is_rebuilt_if_the_deletion_was_noted(tmp_path: Path) -> None:
    """Without it storage nodes keep the ledgers of the topic for ever: a missing record proves no deletion."""
    async with rebuilding(tmp_path) as one:
        path = paths.tombstone(TOPIC)
        assert "has noted that" in await one.refusal(path, NotFound)
        await one.world.note(path, b"", deleted=True, era=ERA)
        done = await one.rebuild(path)
        assert (done.records, done.fault) == ({path: b""}, "it is missing")
        assert (await one.node(path)).data == b""
        assert "can be read" in await one.refusal(path)


async def test_empty_records_are_shown() -> None:
    """A tenant and a tombstone have no content."""
    path = paths.tenant_policies("shop")
    shown = view_of(RebuiltRecord(path, "it is missing", {path: b""}, written=True))
    assert shown.records == {path: {}}


async def test_tenant_and_namespace_are_rebuilt_although_both_are_missing(tmp_path: Path) -> None:
    """Whoever deletes a tenant's record by mistake has deleted those below it. The rights are those of the note."""
    tenant, namespace = f"{paths.NAMESPACES}/public", f"{paths.NAMESPACES}/public/default"
    async with rebuilding(tmp_path) as one:
        await one.world.note(tenant, b"", era=ERA)
        await one.remove(namespace)
        await one.remove(tenant)
        await one.rebuild(namespace)
        assert one.record(namespace)["permissions"] == {"ann": ["produce"]}
        assert "can be read" in await one.refusal(tenant)
        await one.remove(namespace)
        await one.remove(tenant)
        await one.rebuild(tenant)
        assert (await one.node(tenant)).data == b""
