"""`python -m oncelog.metadata`: one metadata service."""

import argparse
import os
import sys

from oncelog.metadata.service import MetadataService
from oncelog.runtime.logs import set_up_logs
from oncelog.runtime.process import run
from oncelog.runtime.settings import MetadataSettings, load


def main() -> int:
    about = "Run one metadata service: topic look-up, placement of topics on owners, REST and HTTP publish."
    parser = argparse.ArgumentParser(prog="oncelog.metadata", description=about)
    parser.add_argument(
        "--zookeeper",
        dest="zookeeper_hosts",
        help="ZooKeeper servers, host:port[,host:port...]; the first start initialises the cluster",
    )
    parser.add_argument("--host", dest="listen_host", help="address to listen on")
    parser.add_argument("--port", dest="grpc_port", type=int, help="gRPC port, usually 6650; 0: any free port")
    parser.add_argument("--http-port", dest="rest_port", type=int, help="REST port, usually 8080; 0: any free port")
    parser.add_argument("--health-port", type=int, help="port of /livez, /readyz and /metrics; 0: any free port")
    parser.add_argument("--advertised-host", help="host name or IP address at which others reach this service")
    parser.add_argument(
        "--advertised-port", type=int, help="gRPC port at which others reach this service; 0: the listening port"
    )
    settings = load(MetadataSettings, os.environ, **vars(parser.parse_args()))
    set_up_logs(settings.log_level)
    return run(MetadataService(settings).run, drain_timeout_ms=settings.drain_timeout_ms)


if __name__ == "__main__":
    sys.exit(main())
