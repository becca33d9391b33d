"""`python -m oncelog_spark.cli`, and the main file for spark-submit: the commands of `oncelog pipeline`.

    spark-submit --master k8s://… --conf … local:///…/oncelog_spark/cli/__main__.py audit flights --url …

The package must be installed where the driver and the executors run.
"""

import os
import sys
from pathlib import Path

# Python puts a script's own directory first: its modules would hide other modules of the same name.
if __name__ == "__main__":
    sys.path[:] = [place for place in sys.path if Path(place).resolve() != Path(__file__).resolve().parent]


def main() -> None:
    from oncelog.runtime.descriptors import program
    from oncelog.runtime.variables import warn_of_unknown
    from oncelog_spark.cli.app import pipeline

    warn_of_unknown(os.environ)
    program(pipeline)(prog_name="oncelog pipeline")


if __name__ == "__main__":
    main()
