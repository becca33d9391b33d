"""`python -m tests.fault_proof.storage_node`: a storage node over an interposed disk, with the product's arguments."""

import os
import sys
from pathlib import Path

from tests.fault_proof.interposed_disk import FAULTS_VARIABLE, InterposedDisk


def main() -> int:
    data = Path(sys.argv[sys.argv.index("--data") + 1]).absolute()
    disk = InterposedDisk(data, Path(os.environ[FAULTS_VARIABLE]))
    disk.install()
    # The product binds functions of `os` when it is imported.
    from oncelog.log_storage.__main__ import main as serve
    from oncelog.log_storage.directory.segment_writer import DiskCalls

    return serve(DiskCalls(step=disk.named_step))


if __name__ == "__main__":
    sys.exit(main())
