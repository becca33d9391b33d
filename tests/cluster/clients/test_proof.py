"""The proof of a topic on a running cluster: real copies on real disks, and a metadata service that is killed."""

from pathlib import Path
from typing import Any

import pytest

import oncelog
from tests.cluster.cluster_fixture import DEADLINE_S, Cluster, rest_path
from tests.cluster.until import until

pytestmark = pytest.mark.asyncio

#: 6 MB in all: at the lowest pace a part takes seconds.
VALUE_BYTES, MESSAGES = 200_000, 30
SLOWEST = 1024 * 1024
MARK = b"the byte that is flipped:"


async def ended(cluster: Cluster, path: str) -> dict[str, Any]:
    """The verdict, once no proof goes on."""

    async def over() -> Any:
        seen = await cluster.get(path)
        return None if seen["going"] is not None else seen["verdict"]

    verdict: dict[str, Any] = await until(over, DEADLINE_S, every_s=0.1, waiting_for="the verdict")
    return verdict


def flip_byte_behind(mark: bytes, directory: Path) -> None:
    """In the segment of the storage node that has it."""
    for segment in sorted(directory.rglob("*.seg")):
        at = segment.read_bytes().find(mark)
        if at >= 0:
            with segment.open("r+b") as file:
                file.seek(at + len(mark))
                byte = file.read(1)[0]
                file.seek(at + len(mark))
                file.write(bytes([byte ^ 1]))
            return
    raise AssertionError(f"no segment in {directory} has the message")


async def test_proof_survives_a_kill_and_finds_a_flipped_byte(cluster: Cluster, client: oncelog.AsyncClient) -> None:
    """The metadata service is killed while copies are read: the proof goes on. Then one byte of one copy is flipped on
    its disk. Readers notice nothing, because the other copy is sound; the proof names the entry and the storage node,
    and the former verdict is replaced."""
    topic, path = "proved", f"{rest_path('proved')}/proof"
    async with await client.create_producer(topic, producer_name="writer") as producer:
        for number in range(MESSAGES):
            await producer.send(MARK + bytes([number]) + bytes(VALUE_BYTES))
        async with await client.subscribe(topic, subscription="billing", start=oncelog.EARLIEST) as consumer:
            for _ in range(3):
                await consumer.ack(await consumer.receive(timeout=DEADLINE_S))
        # A proof that does not find this snapshot says so.
        assert (await cluster.request("POST", f"{rest_path(topic)}/deduplication/snapshot")).status_code == 200

        assert (await cluster.request("POST", path, json={"bytes_per_second": SLOWEST})).status_code == 200

        async def reads_copies() -> bool:
            going = (await cluster.get(path))["going"] or {"parts": []}
            return any((each["part"], each["state"]) == ("copies", "running") for each in going["parts"])

        await cluster.kill("metadata-1", once=reads_copies)
        await cluster.healed()
        proved = await ended(cluster, path)
        assert (proved["state"], proved["began"], proved["until_index"]) == ("proved", 2, MESSAGES), proved
        assert (await cluster.stats(topic, "internalStats"))["snapshot"]["number"] == 1
        parts = {each["part"]: (each["done"], each["of"]) for each in proved["parts"]}
        assert parts["acks"] == (1, 1)
        assert parts["copies"] == (proved["entries"], proved["entries"])

        await producer.send(b"behind the range")
        assert (await cluster.get(path))["behind"] == 1
        flip_byte_behind(MARK + bytes([7]), cluster.data / "storage-1")
        assert (await cluster.request("POST", path)).status_code == 200
        failed = await ended(cluster, path)
        assert (failed["state"], failed["findings_count"]) == ("failed", 2), failed
        [[damaged, scarce]] = [each["findings"] for each in failed["parts"] if each["part"] == "copies"]
        assert f"the copy on {cluster.serving('storage-1', 'incarnation')[:8]} is damaged" in damaged["message"]
        assert "fewer than 2 copies" in scarce["message"]
        assert damaged["position"] == scarce["position"]
    await cluster.change("DELETE", rest_path(topic))
    assert (await cluster.get("/admin/v2/proofs"))["proofs"] == []
