"""What storage nodes say of their directories, at the addresses that the setting `new_cluster_nodes_file` names.

A storage node answers GET /directory at its health port, also while it waits for the cluster: {"cluster_id": …,
"address": …}, of its directory and of its gRPC; the id is null if the directory is empty.
"""

import asyncio
import json
import logging
from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path

from oncelog.core.address import host_fault, split_address
from oncelog.core.errors import InvalidArgument
from oncelog.core.placement.first_cluster import Answers, DirectorySeen, NoAnswer
from oncelog.runtime.settings import variable

logger = logging.getLogger(__name__)

#: Of one question to a storage node.
ASK_TIMEOUT_S = 2.0
_ANSWER_BYTES_MAX = 8 * 1024
_FIELD = "new_cluster_nodes_file"


def read_nodes(path: Path) -> list[str]:
    """The file has host:health_port of each storage node, one in each line. Raises InvalidArgument."""
    try:
        nodes = [line.strip() for line in path.read_text().splitlines() if line.strip()]
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"{variable(_FIELD)}: {path} cannot be read ({error})", field=_FIELD) from error
    for node in nodes:
        host, _, port = node.rpartition(":")
        if host_fault(host) is not None or not port.isdecimal() or not 0 < int(port) < 65_536:
            raise InvalidArgument(f"{variable(_FIELD)}: {path}: {node[:100]!r} is not host:port", field=_FIELD)
    return nodes


def nodes_in(path: str) -> list[str]:
    """The health addresses of all storage nodes, as far as settings name them. path: of the file, or empty. Raises
    InvalidArgument."""
    return read_nodes(Path(path)) if path else []


async def directories_in(path: str) -> Answers:
    """What those storage nodes say of their directories; none if the file cannot be read, which only a new cluster
    needs."""
    try:
        return await answers_of(nodes_in(path))
    except InvalidArgument as error:
        logger.warning("storage nodes are not found by settings: %s", error.message)
        return {}


async def answers_of(nodes: Sequence[str]) -> Answers:
    """What each says of its directory. nodes: host:health_port."""
    return dict(zip(nodes, await asyncio.gather(*map(directory_at, nodes)), strict=True))


async def directory_at(node: str) -> DirectorySeen | NoAnswer:
    """What a storage node says of its directory. node: host:health_port."""
    host, port = split_address(node)
    try:
        async with asyncio.timeout(ASK_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(host, port, limit=_ANSWER_BYTES_MAX)
            try:
                writer.write(f"GET /directory HTTP/1.1\r\nHost: {node}\r\n\r\n".encode())
                answer = await reader.read(_ANSWER_BYTES_MAX)
                while part := await reader.read(_ANSWER_BYTES_MAX - len(answer)):
                    answer += part
            finally:
                writer.close()
    except TimeoutError:
        return NoAnswer(f"timeout of {ASK_TIMEOUT_S:g} s")
    except OSError as error:
        return NoAnswer(error.strerror or str(error))
    return _parsed(answer)


def _parsed(answer: bytes) -> DirectorySeen | NoAnswer:
    head, _, body = answer.partition(b"\r\n\r\n")
    status = head.split(b" ", 2)[1:2]
    if status != [str(HTTPStatus.OK.value).encode()]:
        return NoAnswer(f"HTTP status {b''.join(status).decode(errors='replace') or 'missing'}")
    try:
        fields = json.loads(body)
        cluster_id, address = fields["cluster_id"] or "", fields.get("address") or ""
    except (ValueError, TypeError, KeyError, AttributeError):
        return NoAnswer("an answer that is not understood")
    if not isinstance(cluster_id, str) or not isinstance(address, str):
        return NoAnswer("no cluster id")
    return DirectorySeen(cluster_id, address)
