"""Faults that destroy copies: they wait for permission, and end when all copies are back."""

from pathlib import Path
from typing import Any

import pytest

from oncelog_lab.failures import FaultMissed, LabFailed
from oncelog_lab.faults.bit_rot import FLIPS, flip_bits
from oncelog_lab.faults.replacement import FORMER, WAITED_S, Replacement

NODES = [
    {"incarnation": "aa", "address": "storage-0.x:6650", "live": True},
    {"incarnation": "bb", "address": "storage-1.x:6650", "live": True},
    {"incarnation": "old", "address": "storage-1.x:6650", "live": False},
]


class FakeRest:
    """answers: {incarnation: what may-replace answers, one after the other; the last one lasts}."""

    def __init__(self, nodes: list[dict[str, Any]], answers: dict[str, list[Any]]) -> None:
        self.nodes = nodes
        self._answers = answers

    async def get(self, path: str) -> Any:
        if path == "/admin/v2/storage-nodes":
            return self.nodes
        answers = self._answers[path.split("/")[-2]]
        return answers.pop(0) if len(answers) > 1 else answers[0]


def replacement(rest: FakeRest, deadline_s: float = 30.0) -> Replacement:
    return Replacement(rest.get, deadline_s=deadline_s, check_every_s=0.0)


def yes() -> dict[str, Any]:
    return {"may_replace": True, "reasons": []}


def no(reason: str = "ledger 4 has two copies") -> dict[str, Any]:
    return {"may_replace": False, "reasons": [reason]}


@pytest.mark.asyncio
async def test_fault_waits_until_the_node_may_be_replaced() -> None:
    """Also while REST does not answer."""
    rest = FakeRest(NODES, {"bb": [no(), None, no(), yes()]})
    detail = await replacement(rest).permitted(lambda address: address.startswith("storage-1."))
    assert detail[FORMER] == "bb"
    assert float(detail[WAITED_S]) >= 0


@pytest.mark.asyncio
async def test_fault_without_permission_is_missed_with_the_reasons() -> None:
    rest = FakeRest(NODES, {"aa": [no("ledger 7 is lost")]})
    with pytest.raises(LabFailed, match="ledger 7 is lost"):
        await replacement(rest, deadline_s=0.0).permitted(lambda address: address.startswith("storage-0."))


@pytest.mark.asyncio
async def test_copies_are_back_when_every_node_may_be_replaced() -> None:
    rest = FakeRest(NODES, {"aa": [no(), yes()], "bb": [no(), yes()]})
    await replacement(rest).restored(lambda address: address.startswith("storage-1."))


@pytest.mark.asyncio
async def test_former_incarnation_does_not_count_as_back() -> None:
    """It is registered until its session ends."""
    rest = FakeRest(NODES, {"aa": [yes()], "bb": [yes()]})
    with pytest.raises(LabFailed, match="a storage node at the address"):
        await replacement(rest, deadline_s=0.0).restored(lambda address: address.startswith("storage-1."), not_as="bb")


def test_bits_are_flipped_in_the_written_part(tmp_path: Path) -> None:
    """The same seed flips the same bits."""
    written = b"\x55" * 100 + bytes(50)
    (tmp_path / "1.seg").write_bytes(written)
    places = flip_bits(tmp_path, 7)
    data = (tmp_path / "1.seg").read_bytes()
    changed = [at for at, (old, new) in enumerate(zip(written, data, strict=True)) if old != new]
    assert 1 <= len(changed) <= FLIPS
    assert all(at < 100 and (written[at] ^ data[at]).bit_count() <= FLIPS for at in changed)
    (tmp_path / "1.seg").write_bytes(written)
    assert flip_bits(tmp_path, 7) == places
    assert (tmp_path / "1.seg").read_bytes() == data


def test_directory_without_data_has_nothing_to_damage(tmp_path: Path) -> None:
    (tmp_path / "1.seg").write_bytes(bytes(4096))
    with pytest.raises(FaultMissed, match="no segment with data"):
        flip_bits(tmp_path, 1)
