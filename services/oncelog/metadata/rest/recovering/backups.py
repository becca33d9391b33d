"""Routes for copies of ZooKeeper's records. A copy has names, policies and rights of all tenants, so they are for
superusers, and for roles of their own."""

from collections.abc import AsyncGenerator
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

from oncelog.core.errors import InvalidArgument
from oncelog.metadata.replica import Coordination
from oncelog.metadata.rest.access import for_backups
from oncelog.metadata.rest.routers import new_router
from oncelog.metadata.restore.record_copies import CopyPart, KeptCopy, RecordCopies
from oncelog.metadata_store.copies.copy_folder import SUFFIX, created_of


class _File(StreamingResponse):
    media_type = "application/octet-stream"


class CopyView(BaseModel):
    """One copy of all records."""

    name: str
    created_ms: int = Field(description="When it was begun, in ms since 1970, by the clock of its metadata service")
    bytes: int = Field(description="Size of the file")
    pinned: bool = Field(description="Storage nodes keep it when their disks fill; one a day is pinned")
    nodes: list[str] = Field(description="Live storage nodes that have it")


class CopyList(BaseModel):
    """What the live storage nodes keep."""

    backups: list[CopyView] = Field(description="The newest first")
    unanswered: list[str] = Field(description="Live storage nodes that did not say what they have")


class NewCopyView(CopyView):
    """A copy that was made now."""

    records: dict[str, int] = Field(description="Records of each kind, by the folder that they are in")
    key_id: str = Field(description="The key that encrypts it; empty: it is not encrypted")


async def name_of_copy(name: Annotated[str, Path(description="The copy's name, from the list")]) -> str:
    """A dependency. Raises InvalidArgument."""
    if not created_of(name):
        raise InvalidArgument(f"{name[:200]!r} is no name of a copy: list the copies", field="name")
    return name


def routes(coordination: Coordination) -> APIRouter:
    """Make, list and download copies."""
    router = new_router(prefix="/admin/v2/backups", tags=["cluster"], dependencies=[for_backups])

    @router.post("", summary="Copy all records of ZooKeeper now", operation_id="create_backup")
    async def create_backup() -> NewCopyView:
        """Reads all records, at most 2,000 a second, and stores the copy on as many storage nodes as may be lost, plus
        one. `service_unavailable` names where it could not be stored."""
        made = await coordination.copies.create()
        view = view_of_copy(made.kept).model_dump()
        return NewCopyView(**view, records=dict(made.manifest.records), key_id=made.key_id)

    @router.get("", summary="List the copies of all records", operation_id="list_backups")
    async def list_backups() -> CopyList:
        """What the live storage nodes have now."""
        listing = await coordination.copies.list()
        return CopyList(backups=[view_of_copy(one) for one in listing.copies], unanswered=list(listing.unanswered))

    @router.get(
        "/{name}",
        summary="Download a copy of all records",
        operation_id="get_backup",
        response_class=_File,
    )
    async def get_backup(
        name: Annotated[str, Depends(name_of_copy)],
        offset: Annotated[int, Query(description="First byte", ge=0, lt=2**31)] = 0,
        bytes_max: Annotated[int | None, Query(description="At most so many bytes; by default all", ge=1)] = None,
    ) -> _File:
        """The file as it is stored. `oncelog admin backup verify` checks it."""
        copies = coordination.copies
        first = await copies.read(name, offset, bytes_max)
        count = max(0, min(first.size - offset, bytes_max or first.size))
        headers = {
            "content-length": str(count),
            "content-disposition": f'attachment; filename="{name}{SUFFIX}"',
            "oncelog-bytes": str(first.size),
        }
        return _File(_parts(copies, name, first, offset, count), headers=headers)

    return router


async def _parts(
    copies: RecordCopies, name: str, part: CopyPart, offset: int, count: int
) -> AsyncGenerator[bytes, None]:
    """part: the first one. A storage node that ends meanwhile cuts the answer off."""
    end = offset + count
    while offset < end and part.data:
        yield part.data
        offset += len(part.data)
        if offset < end:
            part = await copies.read(name, offset, end - offset, node=part.node)


def view_of_copy(one: KeptCopy) -> CopyView:
    """As it is answered."""
    return CopyView(name=one.name, created_ms=one.created_ms, bytes=one.size, pinned=one.pinned, nodes=list(one.nodes))
