"""`python -m oncelog.metadata`: one metadata service, or with --create-cluster the creation of a cluster."""

import argparse
import json
from functools import partial

from oncelog.metadata.cluster.new_cluster import creator
from oncelog.metadata.service import MetadataService
from oncelog.metadata_store.joining.joining import join_cluster
from oncelog.runtime.descriptors import program
from oncelog.runtime.process import Shutdown, load_settings, run
from oncelog.runtime.settings import MetadataSettings


async def create_cluster(settings: MetadataSettings, shutdown: Shutdown) -> None:
    """Print the id of the cluster, which is created if there is none."""
    joined = await join_cluster(settings, shutdown, find=creator(settings))
    if joined is not None:
        await joined.session.close()
        print(json.dumps({"cluster_id": joined.cluster.cluster_id}), flush=True)


@program
def main() -> int:
    about = "Run one metadata service: topic look-up, placement of topics on owners, REST and HTTP publish."
    parser = argparse.ArgumentParser(prog="oncelog.metadata", description=about)
    parser.add_argument(
        "--zookeeper",
        dest="zookeeper_hosts",
        help="ZooKeeper servers, host:port[,host:port...]",
    )
    parser.add_argument(
        "--create-cluster",
        action="store_true",
        help="create the cluster in ZooKeeper, print its id, and exit; change nothing if it exists. Use it once, for a "
        "new cluster, and never for one whose ZooKeeper has lost its data",
    )
    parser.add_argument("--host", dest="listen_host", help="address to listen on")
    parser.add_argument("--port", dest="grpc_port", type=int, help="gRPC port, usually 6650; 0: any free port")
    parser.add_argument("--http-port", dest="rest_port", type=int, help="REST port, usually 8080; 0: any free port")
    parser.add_argument("--health-port", type=int, help="port of /livez, /readyz and /metrics; 0: any free port")
    parser.add_argument("--advertised-host", help="host name or IP address at which others reach this service")
    parser.add_argument(
        "--advertised-port", type=int, help="gRPC port at which others reach this service; 0: the listening port"
    )
    arguments = vars(parser.parse_args())
    creates = arguments.pop("create_cluster")
    settings = load_settings(MetadataSettings, arguments)
    if creates:
        return run(partial(create_cluster, settings), drain_timeout_ms=settings.drain_timeout_ms)
    return run(MetadataService(settings).run, drain_timeout_ms=settings.drain_timeout_ms)


if __name__ == "__main__":
    main()
