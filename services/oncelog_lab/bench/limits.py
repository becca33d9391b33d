"""The limits run: what this machine can do at most, and which share of that the product uses.

limits path          the bare path of a write through all processes (`baseline_path`)
synced appends       three files on one disk, each synced after each append of 1 MiB
loopback socket      one TCP connection
gRPC pair            two processes with one stream, frames of 1 MiB or 64 KiB
shares               all bytes that a load of the product moves, divided by each limit of the machine

A published byte is written to three files, and moves four times: from the client to the owner, and to three storage
nodes. A byte that is read moves once. The disk, the socket and the pair have the whole machine for themselves, while
the processes of the product share it; on many cores, a share of the pair can be more than 1.
"""

import asyncio
import os
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from oncelog.client.client import AsyncClient
from oncelog.rpc.options import FRAME_BYTES_TARGET
from oncelog_lab.bench.baseline import BaselineClient, bare_pair
from oncelog_lab.bench.baseline_path import FILE_BYTES, HOST, LimitsStorageNode
from oncelog_lab.bench.consume import count_batches, read_whole
from oncelog_lab.bench.figures import BenchRow, median, rounded
from oncelog_lab.bench.loads import send_lists
from oncelog_lab.bench.publish import LIST_BATCHES, new_producers
from oncelog_lab.bench.running import BenchStack, Tell
from oncelog_lab.bench.settings import SMALL, BenchSettings
from oncelog_lab.cluster import STORAGE_NODES

LATENCY_BYTES = 100
DISK, SOCKET = "synced appends", "a loopback socket"
LARGE_FRAMES, SMALL_FRAMES = "a gRPC pair, 1 MiB frames", "a gRPC pair, 64 KiB frames"

#: Of one append, and of one call of a socket.
PIECE_BYTES = 1024 * 1024
#: For a connection to this process, or for bytes that it has sent.
_SOCKET_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Use:
    """A load of the product. bytes_per_s: of its values, one for each run. on_disk, moved: how often each byte is
    written to a disk, and sent from one process to another."""

    what: str
    bytes_per_s: list[float]
    on_disk: int
    moved: int


async def limits_rows(stack: BenchStack, settings: BenchSettings, tell: Tell) -> list[BenchRow]:
    """Those of the limits path, of the machine, and the shares."""
    tell("what this machine can move at most")
    rows = await _path_rows(await stack.path(), settings)
    directory = stack.new_directory()
    directory.mkdir()
    cluster = await stack.cluster()
    limits: dict[str, list[float]] = {}
    small, large = settings.message_bytes, settings.large_message_bytes
    copies = STORAGE_NODES
    uses = [
        Use(f"publish, send_many, {small} B messages", [], copies, 1 + copies),
        Use(f"publish, send_many, {large} B messages", [], copies, 1 + copies),
        Use(f"read_batch, {small} B messages", [], 0, 1),
    ]
    with appended_files(directory) as files:
        async with bare_pair(directory) as pair, await cluster.connect() as client:
            for _ in range(settings.runs):
                for name, bytes_per_s in (await _machine(files, pair, settings.seconds)).items():
                    limits.setdefault(name, []).append(bytes_per_s)
                published, read = await _published_and_read(client, settings, small)
                uses[0].bytes_per_s.append(published)
                uses[1].bytes_per_s.append((await _published_and_read(client, settings, large))[0])
                uses[2].bytes_per_s.append(read)
    return [*rows, *machine_rows(limits), *share_rows(limits, uses)]


def machine_rows(limits: dict[str, list[float]]) -> list[BenchRow]:
    """limits: {name: bytes a second of each run}."""
    return [
        BenchRow(
            f"limits: {name}", median(runs) / 1e6, "MB/s", detail={"mb_per_s": rounded([run / 1e6 for run in runs])}
        )
        for name, runs in limits.items()
    ]


def share_rows(limits: dict[str, list[float]], uses: list[Use]) -> list[BenchRow]:
    """The ratio of each row is the share."""
    return [
        BenchRow(
            f"share: {use.what}, of {name}",
            times * median(use.bytes_per_s) / 1e6,
            "MB/s",
            median(runs) / 1e6,
            detail={"mb_per_s": rounded([run / 1e6 for run in use.bytes_per_s]), "times": times},
            note=f"each byte {times} times" if times > 1 else "",
        )
        for use in uses
        for name, runs in limits.items()
        if (times := use.on_disk if name == DISK else use.moved)
    ]


async def _machine(files: list[LimitsStorageNode], pair: BaselineClient, seconds: float) -> dict[str, float]:
    """Bytes a second of one run. The pair has as many bytes in flight with both sizes of frames."""
    fewer = SMALL.batch_bytes * SMALL.window // FRAME_BYTES_TARGET
    return {
        DISK: await asyncio.to_thread(appended_bytes_per_s, files, seconds),
        SOCKET: await asyncio.to_thread(loopback_bytes_per_s, seconds),
        LARGE_FRAMES: (await pair.publish(frame_bytes=FRAME_BYTES_TARGET, window=fewer, seconds=seconds)).bytes_per_s,
        SMALL_FRAMES: (
            await pair.publish(frame_bytes=SMALL.batch_bytes, window=SMALL.window, seconds=seconds)
        ).bytes_per_s,
    }


async def _published_and_read(client: AsyncClient, settings: BenchSettings, message_bytes: int) -> tuple[float, float]:
    """Bytes a second that were published to a new topic, and that were read from it."""
    (producer,) = await new_producers(client, 1, batch_bytes=settings.large.batch_bytes)
    async with producer:
        load = await send_lists(
            [producer],
            message_bytes=message_bytes,
            batch_bytes=settings.large.batch_bytes,
            list_batches=LIST_BATCHES,
            window=settings.large.window,
            seconds=settings.seconds,
        )
    count, _ = load.messages(message_bytes)
    return load.bytes_per_s, message_bytes * await read_whole(client, producer.topic, count, count_batches)


async def _path_rows(client: BaselineClient, settings: BenchSettings) -> list[BenchRow]:
    """The throughput of large batches, and the latency of single messages at 200 per second.

    A third row has the same bytes in flight in frames of the size that the product fills its frames up to. The
    difference to the first row is what merging frames can gain; no ratio includes it.
    """
    batch_bytes, window = settings.large.batch_bytes, settings.large.window
    message_bytes, seconds = settings.message_bytes, settings.seconds
    throughputs, coalesced, latencies = [], [], []
    fewer = max(1, batch_bytes * window // FRAME_BYTES_TARGET)
    for _ in range(settings.runs):
        throughputs.append(await client.publish(frame_bytes=batch_bytes, window=window, seconds=seconds))
        coalesced.append(await client.publish(frame_bytes=FRAME_BYTES_TARGET, window=fewer, seconds=seconds))
        latencies.append(await client.latencies(frame_bytes=LATENCY_BYTES, per_second=200, seconds=seconds))
    bytes_per_s = [run.bytes_per_s for run in throughputs]
    shape = f"{batch_bytes // 1024} KiB frames, {window} in flight"
    detail: dict[str, object] = {"mb_per_s": rounded([run / 1e6 for run in bytes_per_s])}
    return [
        BenchRow(f"limits: {shape}", median(bytes_per_s) / 1e6, "MB/s", detail=detail),
        BenchRow(f"limits: as messages of {message_bytes} B", median(bytes_per_s) / message_bytes, "msg/s"),
        BenchRow(
            f"limits: {FRAME_BYTES_TARGET // 1024} KiB frames, {fewer} in flight",
            median([run.bytes_per_s for run in coalesced]) / 1e6,
            "MB/s",
        ),
        BenchRow("limits: latency at 200 msg/s, p50", median([run.p50_ms for run in latencies]), "ms"),
        BenchRow("limits: latency at 200 msg/s, p99", median([run.p99_ms for run in latencies]), "ms"),
    ]


@contextmanager
def appended_files(directory: Path, file_bytes: int = FILE_BYTES) -> Iterator[list[LimitsStorageNode]]:
    """One for each storage node, on one disk; their blocks are allocated."""
    with ExitStack() as stack:
        files = []
        for number in range(1, STORAGE_NODES + 1):
            files.append(LimitsStorageNode(directory / f"appended-{number}", file_bytes))
            stack.callback(files[-1].close)
            files[-1].write_blocks()
        yield files


def appended_bytes_per_s(files: list[LimitsStorageNode], seconds: float) -> float:
    """Of all files together, with a thread for each. Each append is synced, as by a storage node."""
    body = os.urandom(PIECE_BYTES)
    began = time.perf_counter()

    def append(file: LimitsStorageNode) -> int:
        count = 0
        while not count or time.perf_counter() - began < seconds:  # once, however late the thread begins
            file.commit([body])
            count += 1
        return count

    with ThreadPoolExecutor(len(files)) as threads:
        count = sum(threads.map(append, files))
    return count * PIECE_BYTES / (time.perf_counter() - began)


def loopback_bytes_per_s(seconds: float) -> float:
    """Through one TCP connection between two threads."""
    body = os.urandom(PIECE_BYTES)
    with socket.create_server((HOST, 0)) as server, ThreadPoolExecutor(1) as threads:
        server.settimeout(_SOCKET_TIMEOUT_S)
        receiving = threads.submit(_receive_all, server)
        with socket.create_connection(server.getsockname(), _SOCKET_TIMEOUT_S) as sender:
            began = time.perf_counter()
            sender.sendall(body)
            while time.perf_counter() - began < seconds:
                sender.sendall(body)
        return receiving.result() / (time.perf_counter() - began)


def _receive_all(server: socket.socket) -> int:
    """Returns the bytes of one connection."""
    connection, _ = server.accept()
    buffer = bytearray(PIECE_BYTES)
    received = 0
    with connection:
        connection.settimeout(_SOCKET_TIMEOUT_S)
        while count := connection.recv_into(buffer):
            received += count
    return received
