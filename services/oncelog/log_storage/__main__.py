"""`python -m oncelog.log_storage`: one storage node."""

import argparse
from pathlib import Path

from oncelog.log_storage.directory.segment_writer import DiskCalls
from oncelog.log_storage.storage_process import StorageProcess
from oncelog.runtime.descriptors import program
from oncelog.runtime.process import load_settings, run
from oncelog.runtime.settings import LogStorageSettings


@program
def main(disk: DiskCalls | None = None) -> int:
    """disk: the system calls, if not the real ones."""
    parser = argparse.ArgumentParser(prog="oncelog.log_storage", description="Run a storage node.")
    parser.add_argument("--data", dest="data_directory", type=Path, help="data directory of this node alone")
    parser.add_argument("--zookeeper", dest="zookeeper_hosts", help="host:port[,host:port…]")
    parser.add_argument("--host", dest="listen_host", help="address to listen on")
    parser.add_argument("--port", dest="grpc_port", type=int, help="gRPC port; 0 picks a free port")
    parser.add_argument("--health-port", type=int, help="port of /livez, /readyz and /metrics; 0 picks a free port")
    parser.add_argument("--advertised-host", help="host under which other processes reach this node")
    parser.add_argument("--advertised-port", type=int, help="gRPC port that others connect to; 0: the listening port")
    parser.add_argument("--segment-bytes", type=int, help="size in bytes of the segment files")
    arguments = vars(parser.parse_args())
    settings = load_settings(LogStorageSettings, arguments)
    return run(StorageProcess(settings, disk).run, drain_timeout_ms=settings.drain_timeout_ms)


if __name__ == "__main__":
    main()
