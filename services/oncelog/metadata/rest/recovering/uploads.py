"""The route that stores a copy of ZooKeeper's records from outside of the cluster. For superusers.

A metadata service that waits for the cluster's record serves it, too (`waiting_app`).
"""

import asyncio
from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from starlette.requests import ClientDisconnect

from oncelog.core.errors import DeadlineExceeded, MessageTooLarge, ServiceUnavailable, TooManyRequests
from oncelog.metadata.rest.recovering.backups import CopyView, name_of_copy, view_of_copy
from oncelog.metadata.rest.recovering.restore import LIST_MAX, checked_address
from oncelog.metadata.rest.routers import new_router
from oncelog.metadata.restore.outside_copy import store_copy
from oncelog.metadata.restore.restoring import Restoring
from oncelog.metadata_store.copies.copy_file import FILE_BYTES_MAX

UPLOAD_S = 600.0
_BODY = {"required": True, "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}


def upload_routes(restoring: Callable[[], Restoring]) -> APIRouter:
    """Of a process that may have no cluster. restoring: raises OncelogError while there is none."""
    router = new_router(prefix="/admin/v2/backups", tags=["cluster"])
    uploading = asyncio.Lock()

    @router.put(
        "/{name}",
        summary="Store a copy that is outside of the cluster",
        operation_id="put_backup",
        openapi_extra={"requestBody": _BODY},
    )
    async def put_backup(
        request: Request,
        name: Annotated[str, Depends(name_of_copy)],
        nodes: Annotated[
            list[str] | None,
            Query(
                max_length=LIST_MAX,
                description="host:port of storage nodes, if neither ZooKeeper nor settings nor notes name them",
            ),
        ] = None,
    ) -> CopyView:
        """Checks the file, and stores it, pinned, on as many storage nodes as may be lost, plus one. The next restore
        reads it. The name must be that of the content: `oncelog admin backup restore FILE` knows it. One upload at a
        time; it can be repeated."""
        given = [checked_address(node) for node in nodes or ()]
        sources = restoring().sources
        if uploading.locked():
            raise TooManyRequests("another copy is being uploaded to this metadata service: repeat it", limit=1)
        async with uploading:
            return view_of_copy(await store_copy(sources, name, await _file(request), given=given))

    return router


async def _file(request: Request) -> bytes:
    """Raises MessageTooLarge, DeadlineExceeded, ServiceUnavailable."""
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(UPLOAD_S):
            async for part in request.stream():
                size += len(part)
                if size > FILE_BYTES_MAX:
                    message = f"the copy has more than {FILE_BYTES_MAX} bytes, the maximum"
                    raise MessageTooLarge(message, field="body", limit=FILE_BYTES_MAX)
                parts.append(part)
    except TimeoutError:
        raise DeadlineExceeded(f"the copy did not arrive within {UPLOAD_S:g} s: nothing is stored") from None
    except ClientDisconnect:
        raise ServiceUnavailable("the upload was cut off: nothing is stored") from None
    return b"".join(parts)
