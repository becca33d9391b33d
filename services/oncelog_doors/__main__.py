"""`oncelog-doors serve`, or `python -m oncelog_doors serve`: one door. `pulsar-proof`, `kafka-proof`: see `proof`."""

import argparse

from oncelog.runtime.descriptors import program
from oncelog.runtime.process import load_settings, run
from oncelog.runtime.settings import DoorSettings
from oncelog_doors.process import DoorProcess
from oncelog_doors.proof import command as proofs
from oncelog_doors.proof.kafka.proof import KAFKA
from oncelog_doors.proof.pulsar.proof import PULSAR


@program
def main() -> int:
    parser = argparse.ArgumentParser(prog="oncelog-doors", description="Gateways to Oncelog for clients of others.")
    commands = parser.add_subparsers(dest="command", required=True)
    for proof in (PULSAR, KAFKA):
        proofs.add_command(commands, proof)
    serve = commands.add_parser(
        "serve",
        help="serve clients of Pulsar and Kafka",
        description="Serve clients of Pulsar and Kafka until SIGTERM.",
    )
    serve.add_argument(
        "--url", help="metadata services of the cluster, oncelog[+proxy][+tls]://host:port[,host:port...]"
    )
    serve.add_argument(
        "--pulsar",
        dest="pulsar_address",
        metavar="HOST:PORT",
        help="listen for clients of Pulsar without TLS; port 0: a free one",
    )
    serve.add_argument(
        "--pulsar-tls",
        dest="pulsar_tls_address",
        metavar="HOST:PORT",
        help="listen for clients of Pulsar with TLS",
    )
    serve.add_argument(
        "--pulsar-rest",
        dest="pulsar_rest_address",
        metavar="HOST:PORT",
        help="listen for pulsar-admin and look-ups over HTTP, without TLS",
    )
    serve.add_argument(
        "--pulsar-rest-tls", dest="pulsar_rest_tls_address", metavar="HOST:PORT", help="the same with TLS (https)"
    )
    serve.add_argument(
        "--kafka",
        dest="kafka_address",
        metavar="HOST:PORT",
        help="listen for clients of Kafka without TLS; port 0: a free one",
    )
    serve.add_argument(
        "--kafka-tls", dest="kafka_tls_address", metavar="HOST:PORT", help="listen for clients of Kafka with TLS"
    )
    serve.add_argument(
        "--kafka-advertised",
        dest="kafka_advertised_address",
        metavar="HOST:PORT",
        help="tell clients of Kafka to connect to this address; default: the address that they have used",
    )
    serve.add_argument("--host", dest="listen_host", help="address of the health port")
    serve.add_argument("--health-port", type=int, help="port of /livez, /readyz and /metrics; 0: a free port")
    parsed = parser.parse_args()
    if "proof" in parsed:
        return proofs.run(parsed)
    arguments = vars(parsed)
    del arguments["command"]
    settings = load_settings(DoorSettings, arguments)
    return run(DoorProcess(settings).run, drain_timeout_ms=settings.drain_timeout_ms)


if __name__ == "__main__":
    main()
