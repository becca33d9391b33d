"""`python -m tests.suite`: the parts of the test suite side by side, with a line of progress every 15 seconds.

A line says, for each part that runs: tests done, of how many, failures so far, and the file that runs now. When a part
ends, its own last line is printed, or, if it failed, all that it wrote but the lines of tests that passed, and where
its logs are.
"""

import argparse
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path

from tests.compiled import keep_compiled
from tests.suite.changes import before_last_night
from tests.suite.class_archive import use_class_archive
from tests.suite.forked_part import forks_of_parts
from tests.suite.parts import PARTS, PROOFS, ROOT, Part, as_part
from tests.suite.proof import Proof
from tests.suite.queue import Places, keep_seconds, longest_first, next_part, read_seconds
from tests.suite.running import Running, check_free_disk, clock, kept_files
from tests.tidy.changed.selection import changed_files, changed_tests, reason_for_all

EVERY_S = 15.0
KEPT = ROOT / ".cache/suite"
SECONDS = KEPT / "seconds.json"
#: instead of a revision: the newest one that all proofs have seen, if they run each night
LAST_NIGHT = "last-night"


def run_all(
    parts: Sequence[Part],
    *,
    seconds: Path,
    places: Places | None = None,
    every_s: float = EVERY_S,
    running: Callable[[Part, Path], Running] = Running,
) -> list[str]:
    """Print the progress and the summaries. Returns the names of the parts that failed."""
    places = places or Places.of_this_machine()
    began, files = time.monotonic(), kept_files()
    last = {name: one.seconds for name, one in read_seconds(seconds).items()}
    waiting, ended, shown_at = longest_first(parts, last), list[Running](), began
    with ThreadPoolExecutor(places.total) as pool:
        now: dict[Future[None], Running] = {}
        while waiting or now:
            while part := next_part(waiting, [one.part for one in now.values()], places):
                waiting.remove(part)
                one = running(part, files)
                now[pool.submit(one.run)] = one
            try:
                done, _ = wait(now, max(0.0, shown_at + every_s - time.monotonic()), FIRST_COMPLETED)
            except KeyboardInterrupt:
                for one in now.values():
                    one.interrupt()
                raise
            for future in done:
                one = now.pop(future)
                future.result()
                ended.append(one)
                print(one.summary(), flush=True)
            if time.monotonic() >= shown_at + every_s:
                shown_at = time.monotonic()
                print(clock(shown_at - began), *(one.progress() for one in now.values()), sep="  ", flush=True)
    keep_seconds(seconds, {one.part.name: one.measured for one in ended if not one.code})
    failed = [one.part.name for one in ended if one.code]
    if not failed:
        shutil.rmtree(files, ignore_errors=True)
    outcome = f"failed: {', '.join(failed)}" if failed else "all passed"
    print(f"==> {outcome}, {clock(time.monotonic() - began)} in all")
    return failed


def chosen_parts(names: Sequence[str]) -> list[Part]:
    """The parts of these names, and those in folders of these names; all without names. Raises SystemExit."""
    chosen = [part for part in PARTS if not names or any(part.is_named(name) for name in names)]
    unknown = [name for name in names if not any(part.is_named(name) for part in PARTS)]
    if unknown:
        raise SystemExit(f"no part is named {', '.join(unknown)}; the parts are: {', '.join(p.name for p in PARTS)}")
    return chosen


def chosen_proofs(names: Sequence[str], since: str | None, without: Sequence[str] = ()) -> list[Part]:
    """All proofs, or those of these names, or those that a change since that revision needs, each with the reason."""
    if unknown := {*names, *without} - {proof.name for proof in PROOFS}:
        raise SystemExit(
            f"no proof is named {', '.join(sorted(unknown))}; the proofs are: {', '.join(p.name for p in PROOFS)}"
        )
    proofs = [proof for proof in PROOFS if proof.name not in without]
    if since is None:
        return [as_part(proof) for proof in proofs if not names or proof.name in names]
    base = before_last_night(ROOT) if since == LAST_NIGHT else since
    changed = changed_files(base)
    print(f"==> {len(changed)} files differ from {base[:12]}; the proofs that they need:")
    return [as_part(proof) for proof in _needed(proofs, changed)]


def _needed(proofs: Sequence[Proof], changed: Sequence[str]) -> list[Proof]:
    """Print the reason for each proof, or that it is not needed."""
    needed = []
    for proof in proofs:
        touched = proof.needed_for(changed)
        more = f" and {len(touched) - 1} more" if touched[1:] else ""
        print(f"    {proof.name}: {touched[0]}{more}" if touched else f"    {proof.name}: not needed")
        needed += [proof] if touched else []
    return needed


def parts_of_change(base: str) -> list[Part]:
    """Lint, and of each part the files that depend on what differs from `base`. Names the proofs that it would need."""
    changed = changed_files(base)
    files = {path.relative_to("tests").as_posix() for path in changed_tests(base)}
    reason = reason_for_all(changed)
    why = f": {reason}" if reason else ""
    print(f"==> {len(changed)} files differ from {base}; {len(files)} test files depend on them{why}")
    parts = [part.only(files) for part in PARTS if changed]
    if any(proof.needed_for(changed) for proof in PROOFS):
        print(f"    not run: `python -m tests.suite --proofs-since {base}` runs the proofs of")
        _needed(PROOFS, changed)
    return [part for part in parts if part is not None]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.suite", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="a part, or a folder of parts (default: all)")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--proofs", action="store_true", help="run the proofs of these names instead (default: all)")
    which.add_argument(
        "--proofs-since", metavar="REV", help=f"run the proofs of what has changed since; or {LAST_NIGHT}"
    )
    parser.add_argument("--without", nargs="+", default=[], metavar="NAME", help="leave out the proofs of these names")
    which.add_argument("--changed", metavar="REV", help="run the test files that depend on what differs from REV")
    which.add_argument("--list", action="store_true", help="print the parts and the proofs, and run nothing")
    given = parser.parse_args()
    if given.list:
        print(*(f"{part.name}: {' '.join(part.paths)}" for part in PARTS), sep="\n")
        print(*(f"proof/{proof.name}: {' '.join(proof.files)}" for proof in PROOFS), sep="\n")
        return 0
    if given.changed:
        parts = parts_of_change(given.changed)
    elif given.proofs or given.proofs_since:
        parts = chosen_proofs(given.names, given.proofs_since, given.without)
    else:
        parts = chosen_parts(given.names)
    keep_compiled()  # pytest and its plugins are imported before tests/conftest.py
    if not all(part.computes for part in parts):  # those that compute start one ZooKeeper in all
        check_free_disk()
        use_class_archive(KEPT)
    with forks_of_parts() as forks:
        return 1 if run_all(parts, seconds=SECONDS, running=partial(Running, forks=forks)) else 0


if __name__ == "__main__":
    sys.exit(main())
