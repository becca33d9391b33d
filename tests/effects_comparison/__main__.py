"""`make effects-comparison`: the same effect in Oncelog and in other systems, under the same faults. A table.

Each system gets the numbers 0 to COUNT - 1, and a program whose effect is a row, or a message. The harness watches the
effects:

- **kills**: kill -9 when the effects reach a number that the seed draws, KILLS times. A program that writes into a
  database dies between the next COMMIT and its answer
- **stop**: SIGSTOP there; a second program runs; the first one is woken after five effects of the second. (Of Oncelog
  the owner of the topic is killed, too: it takes a stopped program for a slow one.)
- **restore**: the program is killed, and its database goes back to a copy that is 20 effects old; only of systems with
  a database

Then the programs run until nothing has changed for a while. `lost` counts numbers without an effect, `doubled` effects
beyond the first of a number. A program that ends by itself is reported with its error; that of a relay is answered by
the command that the error names.
"""

import argparse
import asyncio
import random
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from tests.cluster.cluster_fixture import Cluster
from tests.contract.stores.redis_process import RedisProcess
from tests.effects.postgres_process import PostgresProcess
from tests.effects_comparison.run import FAULTS, Places, Run
from tests.effects_comparison.servers import installed, kafka, kafka_version
from tests.effects_comparison.systems import SYSTEMS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.effects_comparison", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="draws the numbers at which programs are killed")
    parser.add_argument("--count", type=int, default=120, help="numbers that each system gets [120]")
    parser.add_argument("--kills", type=int, default=4, help="of each program [4]")
    parser.add_argument("--only", nargs="+", metavar="PROGRAM", help="such as oncelog_sql; default: all")
    parser.add_argument("--directory", type=Path, default=Path("build/comparison"), help="of what is installed")
    given = parser.parse_args()
    python, jars = installed(given.directory.absolute())
    versions = subprocess.run(
        [str(python), "-m", "pip", "freeze"], check=True, capture_output=True, text=True
    ).stdout.split()
    print(f"seed {given.seed}, {given.count} numbers, {given.kills} kills; kafka {kafka_version(jars)}")
    print(*(each for each in versions if each.startswith(("aiokafka", "celery", "confluent", "psycopg=", "redis"))))
    print("\n| system | fault | lost | doubled | |\n|---|---|---:|---:|---|", flush=True)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="comparison-")))
        postgres = stack.enter_context(PostgresProcess.running())
        redis = stack.enter_context(RedisProcess.running(directory / "redis"))
        (directory / "cluster").mkdir()
        cluster = stack.enter_context(Cluster.running(directory / "cluster"))
        broker = stack.enter_context(kafka(directory / "kafka", jars))
        places = Places(python, directory, postgres.url, redis.url, broker, cluster)
        own_wrong = 0
        for system in SYSTEMS:
            if given.only and system.program not in given.only:
                continue
            for fault in FAULTS:
                if fault == "restore" and not system.restores:
                    continue
                draw = random.Random(f"{given.seed}/{fault}")  # the same for all systems
                run = Run(places, system, fault, draw, count=given.count, kills=given.kills)
                result = asyncio.run(run.result())
                print(f"| {system.name} | {fault} | {result.lost} | {result.doubled} | {result.note} |", flush=True)
                own_wrong += system.own and result.lost + result.doubled > 0
    return 1 if own_wrong else 0


if __name__ == "__main__":
    sys.exit(main())
