"""`python -m oncelog.topic_owner`: one topic owner."""

import argparse

from oncelog.runtime.descriptors import program
from oncelog.runtime.process import load_settings, run
from oncelog.runtime.settings import TopicOwnerSettings
from oncelog.topic_owner.owner import Owner


@program
def main() -> int:
    parser = argparse.ArgumentParser(prog="oncelog.topic_owner", description="Serve topics of one cluster.")
    parser.add_argument("--zookeeper", dest="zookeeper_hosts", help="host:port[,host:port…]")
    parser.add_argument("--host", dest="listen_host", help="address to listen on")
    parser.add_argument("--port", dest="grpc_port", type=int, help="gRPC port; 0: a free port")
    parser.add_argument("--health-port", type=int, help="port of /livez, /readyz and /metrics; 0: a free port")
    parser.add_argument("--advertised-host", help="host name that others connect to")
    parser.add_argument("--advertised-port", type=int, help="gRPC port that others connect to; 0: the listen port")
    parser.add_argument("--internal-host", help="host name that only services connect to, at the listen port")
    parser.add_argument("--write-quorum", type=int, help="copies of each entry")
    parser.add_argument("--ack-quorum", type=int, help="synced copies before an acknowledgement")
    settings = load_settings(TopicOwnerSettings, vars(parser.parse_args()))
    return run(Owner(settings).run, drain_timeout_ms=settings.stability_timeout_ms + settings.drain_timeout_ms)


if __name__ == "__main__":
    main()
