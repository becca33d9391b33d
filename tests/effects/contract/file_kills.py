"""A program that appends numbers to a file by `FileEffects`, with a fault at each second or fourth of its steps on the
disk in turn.

    python -m tests.effects.contract.file_kills DIRECTORY

A process is killed before the step, or the step fails with an error of the disk and the process claims the file again.
Then perhaps a power cut loses what was not synced. A second process begins where the file is and ends the work. The
file must have each number once, and nothing that the first process took for applied may be lost. Prints how many steps
there were with each fault.
"""

import asyncio
import os
import shutil
import sys
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from oncelog.core.errors import StoreUnavailable
from oncelog_effects.file_store import FileAppend, FileEffects
from oncelog_effects.store import ClaimLost
from tests.effects.contract.positions import FIRST, NAMES, SOURCE, at
from tests.fault_proof.interposed_disk import DiskOrders, DiskRule, InterposedDisk, orders_path, used_path

#: Numbers of a batch; of an empty one nothing is appended.
BATCHES = ((0, 1), (), (2, 3, 4))
WANTED = "".join(f"{number}\n" for batch in BATCHES for number in batch)


async def work(directory: Path, applied: int) -> None:
    """applied: a pipe that gets the number of batches that are applied."""
    effects = FileEffects(directory / "numbers", busy_timeout=1.0)
    while True:
        try:
            await attempt(effects, applied)
            return
        except (StoreUnavailable, ClaimLost):
            pass  # as a source does: the next claim decides


async def attempt(effects: FileEffects, applied: int) -> None:
    await effects.store_id()
    claim = os.urandom(16).hex()
    row = await effects.claim(SOURCE, NAMES, lambda found: replace(found or FIRST, claim=claim))
    for position in range(row.position, len(BATCHES)):

        def run(append: FileAppend, position: int = position) -> None:
            for number in BATCHES[position]:
                print(number, file=append)

        await effects.apply(SOURCE, at(position, claim), at(position + 1, claim), run)
        os.write(applied, bytes([position + 1]))


def in_child(run: Callable[[], None]) -> bool:
    """Whether it came to its end; otherwise it was killed."""
    child = os.fork()
    if not child:
        try:
            run()
        except BaseException:  # noqa: BLE001  # the copy of this process must not go on
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return False
    assert os.waitstatus_to_exitcode(status) == 0
    return True


def fault_at(directory: Path, step: int, fault: DiskRule, *, power_cut: bool) -> bool:
    """Whether there is such a step."""
    data, faults = directory / "data", directory / "faults"
    for path in (data, faults, directory / "data.unsynced"):
        shutil.rmtree(path, ignore_errors=True)
    data.mkdir()
    reading, writing = os.pipe()

    def run() -> None:
        InterposedDisk(data, faults).install()
        asyncio.run(work(data, writing))

    DiskOrders([replace(fault, skip=step)]).write(orders_path(faults, "data"))
    in_child(run)
    DiskOrders(power_cuts=int(power_cut)).write(orders_path(faults, "data"))
    os.write(writing, b"\0")
    applied = max(os.read(reading, 1000))
    if power_cut:
        in_child(lambda: InterposedDisk(data, faults).close())  # carries it out
    present = (data / "numbers").read_text() if (data / "numbers").exists() else ""
    numbers = "".join(f"{number}\n" for batch in BATCHES[:applied] for number in batch)
    assert present.startswith(numbers), f"step {step}: {applied} batches were applied, and the file has {present!r}"
    assert in_child(run), "the second process was killed"
    found = (data / "numbers").read_text()
    assert found == WANTED, f"step {step}, power cut {power_cut}: {found!r}"
    os.close(reading)
    os.close(writing)
    return used_path(faults, "data", fault.name).exists()


def main(directory: Path) -> None:
    kill, error = DiskRule("kill", kill="before"), DiskRule("error", error="EIO")
    # The simulated power cut takes back each growth of a file whose sync has failed once, whatever was synced since: a
    # real one does not, so the data is left out there.
    beside = replace(error, path="*.oncelog*")
    for fault, power_cut, every in ((kill, True, 2), (kill, False, 4), (error, False, 4), (beside, True, 4)):
        step = 0
        while fault_at(directory, step, fault, power_cut=power_cut):
            step += every
        print(fault.name, step)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
