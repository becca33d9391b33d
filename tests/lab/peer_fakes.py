"""Stand-ins for the programs and the Python clients of Kafka and Pulsar: they listen, and print lines as those do."""

import os
import sys
from pathlib import Path

#: As kafka-producer-perf-test, kafka-consumer-perf-test and pulsar-perf print them.
KAFKA_PRODUCED = "1201 records sent, 240.2 records/sec (0.02 MB/sec), 3.4 ms avg latency, 21.0 ms max latency."
KAFKA_CONSUMED = (
    "2026-11-30 07:00:00:123, 2026-11-30 07:00:05:624, 95.3674, 17.3364, 1000000, 181785.1300, 3512, 1989, 47.9474, "
    "502765.2087"
)
PULSAR_PRODUCED = (
    "2026-11-30T07:00:10,001+0000 [main] INFO  org.apache.pulsar.testclient.PerformanceProducer - Throughput produced: "
    "    2003 msg ---    200.3 msg/s ---      0.2 Mbit/s  --- failure      0.0 msg/s --- Latency: mean:   3.214 ms - "
    "med:   3.105 - 95pct:   4.800 - 99pct:   6.512 - 99.9pct:  11.020 - 99.99pct:  11.020 - Max:  11.020"
)
PULSAR_READ = (
    "2026-11-30T07:00:10,001+0000 [Thread-1] INFO  org.apache.pulsar.testclient.PerformanceReader - Aggregated "
    "throughput stats --- 1000000 records received --- 310204.118 msg/s --- 236.667 Mbit/s"
)

_LISTEN = """
import http.server, pathlib, re, signal, socket, sys, threading

def value(file, key):
    return re.search(rf"(?m)^{re.escape(key)}=(.*)$", pathlib.Path(file).read_text())[1]

def listen(*ports):
    servers = [socket.create_server(("127.0.0.1", int(port))) for port in ports]
    signal.pause()

def print_often(line):
    for _ in range(20):
        print(line, flush=True)
    signal.pause()
"""

_JAVA = f"""#!{sys.executable}
{_LISTEN}
words = sys.argv[1:]
home = pathlib.Path(words[words.index("-cp") + 1]).parent
if "kafka.Kafka" in words:
    if (home / "broken").exists() and words[-1].endswith("server-3.properties"):
        sys.exit("ERROR Socket server failed to bind to 127.0.0.1: Address already in use.")
    listen(*re.findall(r"127.0.0.1:(\\d+)", value(words[-1], "listeners")))
if "org.apache.kafka.tools.ProducerPerformance" in words:
    print("Option --producer-props has been deprecated and will be removed in a future version.", flush=True)
    print_often("{KAFKA_PRODUCED}")
if "org.apache.kafka.tools.ConsumerPerformance" in words:
    print("{KAFKA_CONSUMED}", flush=True)
"""

_PULSAR = f"""#!{sys.executable}
import os
{_LISTEN}
class Health(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/admin/v2/brokers/health" else 404)
        self.end_headers()
    def log_message(self, *_):
        pass

role = sys.argv[1]
if role == "zookeeper":
    listen(value(os.environ["PULSAR_ZK_CONF"], "clientPort"))
if role == "bookie":
    listen(value(os.environ["PULSAR_BOOKKEEPER_CONF"], "bookiePort"))
if role == "broker":
    port = int(value(os.environ["PULSAR_BROKER_CONF"], "webServicePort"))
    http.server.HTTPServer(("127.0.0.1", port), Health).serve_forever()
"""

_PULSAR_PERF = f"""#!{sys.executable}
{_LISTEN}
if sys.argv[1] == "produce":
    print_often("{PULSAR_PRODUCED}")
print("{PULSAR_READ}", flush=True)
"""

#: Counts messages and answers all of them; `poll` and `flush` run the callbacks, as in confluent-kafka.
_CONFLUENT_KAFKA = """
OFFSET_BEGINNING = -2
stored = {}

class KafkaException(Exception):
    pass

class TopicPartition:
    def __init__(self, topic, partition, offset):
        self.topic = topic

class Message:
    def error(self):
        return None
    def value(self):
        return b"x"

class Producer:
    def __init__(self, settings):
        self.callbacks = []
    def produce(self, topic, value, on_delivery):
        if len(self.callbacks) == 1000:
            raise BufferError("Local: Queue full")
        self.callbacks.append(on_delivery)
    def produce_batch(self, topic, messages):
        room = len(messages) // 2 + 1
        for message in messages[room:]:
            message["_error"] = "Local: Queue full"
        stored[topic] = stored.get(topic, 0) + room
        return room
    def poll(self, seconds):
        for callback in self.callbacks:
            callback(None, Message())
        self.callbacks = []
    def flush(self, seconds):
        self.poll(0)
        return 0

class Consumer:
    def __init__(self, settings):
        self.left = 0
    def assign(self, partitions):
        self.left = stored[partitions[0].topic]
    def consume(self, count, seconds):
        taken = min(self.left, 100)
        self.left -= taken
        return [Message()] * taken
    def poll(self, seconds):
        self.left -= 1
        return Message() if self.left >= 0 else None
    def close(self):
        pass
"""
_CONFLUENT_KAFKA_ADMIN = """
from concurrent.futures import Future
from confluent_kafka import KafkaException

class NewTopic:
    def __init__(self, topic, num_partitions, replication_factor):
        self.topic = topic

class AdminClient:
    def __init__(self, settings):
        pass
    def create_topics(self, topics):
        future = Future()
        future.set_result(None)
        return {topics[0].topic: future}
"""
#: Counts messages, and answers in the call itself.
_PULSAR_CLIENT = """
stored = {}

class Timeout(Exception):
    pass

class Result:
    Ok = "Ok"

class MessageId:
    earliest = None

class InitialPosition:
    Earliest = 1

class ConsumerBatchReceivePolicy:
    def __init__(self, messages, size, wait_ms):
        pass

class Message:
    def data(self):
        return b"x"

class Producer:
    def __init__(self, topic):
        self.topic = topic
    def send_async(self, value, answered):
        stored[self.topic] = stored.get(self.topic, 0) + 1
        answered(Result.Ok, None)
    def flush(self):
        pass

class Reader:
    def __init__(self, topic):
        self.left = stored[topic]
    def read_next(self, wait_ms):
        self.left -= 1
        if self.left < 0:
            raise Timeout
        return Message()
    def batch_receive(self):
        taken = min(self.left, 100)
        self.left -= taken
        return [Message()] * taken
    def close(self):
        pass

class Client:
    def __init__(self, address):
        pass
    def create_producer(self, topic, **settings):
        return Producer(topic)
    def create_reader(self, topic, start):
        return Reader(topic)
    def subscribe(self, topic, name, **settings):
        return Reader(topic)
"""


def _program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def java_home(directory: Path, version: str = "17.0.1") -> Path:
    """For JAVA_HOME."""
    _program(directory / "bin/java", _JAVA)
    (directory / "release").write_text(f'JAVA_VERSION="{version}"\n')
    return directory


def kafka_home(directory: Path, version: str = "4.4.0") -> Path:
    libs = directory / "libs"
    libs.mkdir(parents=True)
    for name in (f"kafka_2.13-{version}", f"kafka-tools-{version}", f"kafka-clients-{version}"):
        (libs / f"{name}.jar").touch()
    return directory


def pulsar_home(directory: Path, version: str = "4.0.8") -> Path:
    _program(directory / "bin/pulsar", _PULSAR)
    _program(directory / "bin/pulsar-perf", _PULSAR_PERF)
    for folder, name in (
        ("lib", f"org.apache.pulsar-pulsar-broker-{version}.jar"),
        ("lib", f"org.apache.pulsar-pulsar-broker-common-{version}.jar"),
        ("conf", "zookeeper.conf"),
        ("conf", "bookkeeper.conf"),
        ("conf", "broker.conf"),
    ):
        path = directory / folder / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    return directory


def python_clients(directory: Path) -> str:
    """For PYTHONPATH, before what it has now: the two clients, as if they were installed."""
    for name, text in (
        ("confluent_kafka/__init__.py", _CONFLUENT_KAFKA),
        ("confluent_kafka/admin.py", _CONFLUENT_KAFKA_ADMIN),
        ("pulsar.py", _PULSAR_CLIENT),
        ("confluent_kafka-2.16.1.dist-info/METADATA", "Name: confluent-kafka\nVersion: 2.16.1\n"),
        ("pulsar_client-3.13.0.dist-info/METADATA", "Name: pulsar-client\nVersion: 3.13.0\n"),
    ):
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return os.pathsep.join([str(directory), *filter(None, [os.environ.get("PYTHONPATH")])])
