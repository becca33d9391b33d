"""The proofs of doors: real clients of Kafka and Pulsar, their own test suites, and the defects of both systems."""

from tests.suite.proof import CORE, Proof

PROOFS_OF_DOORS: tuple[Proof, ...] = (
    Proof(
        "clients-of-doors",
        tuple(
            f"doors/clients/test_{name}.py"
            for name in ("chunks", "kafka_through_faults", "groups_through_faults", "proof_rows")
        ),
        ("services/oncelog_doors", f"{CORE}/formats", f"{CORE}/groups", f"{CORE}/publishing", "tests/doors/clients"),
        (
            "doors/cluster/test_door_chunks.py",
            *("doors/clients/test_kafka_clients.py", "doors/clients/groups/test_groups.py"),
        ),
        seconds=350.0,
    ),
    Proof(
        "pulsar-java",
        ("doors/clients/java/test_java_clients.py", "doors/clients/java/test_pulsar_admin.py"),
        ("services/oncelog_doors", f"{CORE}/formats/pulsar.py", "tests/doors/clients/java"),
        ("doors/clients/test_python_client.py", "doors/rest/test_pulsar_admin_requests.py"),
        words=("make", "--no-print-directory", "pulsar-java-proof"),
        seconds=240.0,
    ),
    Proof(
        "kafka-java",
        tuple(
            f"doors/clients/kafka_java/test_kafka_java_{name}.py" for name in ("clients", "rights", "through_faults")
        ),
        ("services/oncelog_doors", f"{CORE}/formats/kafka.py", "tests/doors/clients/kafka_java"),
        ("doors/clients/test_kafka_clients.py", "doors/clients/test_kcat.py"),
        words=("make", "--no-print-directory", "kafka-java-proof"),
        seconds=240.0,
    ),
    Proof(
        "kafka-go",
        tuple(f"doors/clients/kafka_go/test_kafka_go_{name}.py" for name in ("clients", "rights", "through_faults")),
        ("services/oncelog_doors", f"{CORE}/formats/kafka.py", f"{CORE}/groups", "tests/doors/clients/kafka_go"),
        ("doors/clients/test_kafka_clients.py", "doors/clients/groups/test_groups.py"),
        words=("make", "--no-print-directory", "kafka-go-proof"),
        seconds=300.0,
    ),
    Proof(
        "pulsar-go",
        ("doors/clients/go/test_go_client.py",),
        ("services/oncelog_doors", f"{CORE}/formats/pulsar.py", "tests/doors/clients/go"),
        ("doors/clients/test_file_through_kills.py", "doors/cluster/test_door_reading.py"),
        words=("make", "--no-print-directory", "pulsar-go-proof"),
        seconds=240.0,
    ),
    Proof(
        "pulsar-suites",
        (),
        ("services/oncelog_doors", f"{CORE}/formats/pulsar.py", f"{CORE}/delivery", "tests/doors/suites"),
        ("doors/clients/test_python_client.py", "doors/clients/test_python_consumers.py"),
        words=("make", "--no-print-directory", "pulsar-suites-proof"),
        seconds=2_400.0,
    ),
    Proof(
        "kafka-suites",
        (),
        ("services/oncelog_doors", f"{CORE}/formats/kafka.py", f"{CORE}/publishing", "tests/doors/suites"),
        ("doors/clients/test_kafka_clients.py", "doors/cluster/test_kafka_door.py"),
        words=("make", "--no-print-directory", "kafka-suites-proof"),
        seconds=2_400.0,
    ),
    Proof(
        "pulsar-defects",
        (),
        ("services/oncelog_doors", f"{CORE}/formats/pulsar.py", f"{CORE}/publishing"),
        ("doors/proof/test_pulsar_cursor.py", "doors/proof/test_pulsar_rule.py"),
        words=("make", "--no-print-directory", "pulsar-proof"),
        seconds=600.0,
    ),
    Proof(
        "kafka-defects",
        (),
        ("services/oncelog_doors", f"{CORE}/formats", f"{CORE}/publishing"),
        ("doors/proof/test_kafka_rule.py", "doors/clients/test_kafka_clients.py"),
        words=("make", "--no-print-directory", "kafka-proof"),
        seconds=600.0,
    ),
)
