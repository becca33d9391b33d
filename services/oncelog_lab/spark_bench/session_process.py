"""A process with one Spark session. It serves requests of a benchmark over a socket: one JSON object per line.

    python -m oncelog_lab.spark_bench.session_process MASTER SOCKET DIRECTORY

It prints its address, serves one connection, and ends with it.
"""

import json
import socket
import sys

from pyspark.errors import PySparkException

from oncelog.core.errors import OncelogError
from oncelog_lab.spark_bench.spark_work import SparkWork
from oncelog_spark.session import new_session

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    # On a busy machine a worker takes seconds to start.
    "spark.python.authenticate.socketTimeout": "120s",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.schemaInference": "true",
    "spark.sql.streaming.numRecentProgressUpdates": "200",
}


def main(master: str, address: str, directory: str) -> None:
    settings = SETTINGS | {"spark.sql.warehouse.dir": f"{directory}/warehouse", "spark.local.dir": f"{directory}/local"}
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(1)
        try:
            session = new_session("oncelog bench", master=master, settings=settings)
        except OncelogError as error:
            sys.exit(error.message)
        session.sparkContext.setLogLevel("ERROR")
        print(json.dumps({"session": address}), flush=True)
        connection, _ = listener.accept()
        with connection, connection.makefile("rw") as lines:
            work = SparkWork(session)
            for line in lines:
                name, arguments = json.loads(line)
                try:
                    answer: dict[str, object] = {"answer": work.perform(name, arguments)}
                except (PySparkException, OncelogError, TimeoutError) as error:
                    answer = {"error": str(error)[:2000]}
                lines.write(json.dumps(answer) + "\n")
                lines.flush()
        session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
