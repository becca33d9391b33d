"""`python -m tests.golden DIRECTORY`: make the golden directory of this version, before a later one changes a format.

It writes data.tar.xz and expected.json. services.tar.xz is `git archive HEAD services/oncelog`, packed by xz.
"""

import argparse
import asyncio
import json
import lzma
import tarfile
import tempfile
from pathlib import Path

from oncelog.log_storage.directory.directory_starts import mark_restored
from tests.cluster.cluster_fixture import Cluster
from tests.golden.contents import fill, seen
from tests.upgrade_proof.mixed_cluster import FormerCluster, MixedCluster


async def make(cluster: Cluster) -> dict[str, object]:
    await fill(cluster)
    return await seen(cluster)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--former", action="store_true", help="by the services of the last golden directory")
    given = parser.parse_args()
    given.directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        kind = FormerCluster if given.former else MixedCluster
        with kind.running(Path(place)) as cluster:
            expected = asyncio.run(make(cluster))
            assert cluster.stop() == 0
        # Its next start puts all of its ledgers into limbo.
        mark_restored(cluster.data / "storage-3")
        (given.directory / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
        with (
            lzma.open(given.directory / "data.tar.xz", "wb", preset=9) as packed,
            tarfile.open(fileobj=packed, mode="w") as archive,
        ):
            for path in sorted(cluster.data.iterdir()):
                if path.name != "logs":
                    archive.add(path, arcname=f"data/{path.name}")


if __name__ == "__main__":
    main()
