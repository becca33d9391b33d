"""`python -m oncelog.metadata`: one metadata service."""

import argparse
import os
import sys

from oncelog.metadata.service import MetadataService
from oncelog.runtime.logs import set_up_logs
from oncelog.runtime.process import run
from oncelog.runtime.settings import MetadataSettings, load


def main() -> int:
    about = "Tell clients where topics are, place topics on owners, and serve the admin REST interface."
    parser = argparse.ArgumentParser(prog="oncelog.metadata", description=about)
    parser.add_argument("--zookeeper", dest="zookeeper_hosts", help="host:port[,host:port…]; the first start sets up")
    parser.add_argument("--host", dest="listen_host", help="address to listen on")
    parser.add_argument("--port", dest="grpc_port", type=int, help="gRPC port, 6650 by custom; 0: a free one")
    parser.add_argument("--http-port", dest="rest_port", type=int, help="REST port, 8080 by custom; 0: a free one")
    parser.add_argument("--health-port", type=int, help="port of /livez, /readyz and /metrics; 0: a free one")
    parser.add_argument("--advertised-host", help="the name under which others reach this service")
    parser.add_argument("--advertised-port", type=int, help="gRPC port that others connect to, 0: the one listened on")
    settings = load(MetadataSettings, os.environ, **vars(parser.parse_args()))
    set_up_logs(settings.log_level)
    return run(MetadataService(settings).run, drain_timeout_ms=settings.drain_timeout_ms)


if __name__ == "__main__":
    sys.exit(main())
