"""What programs do with Java's client of Kafka."""

import subprocess
from pathlib import Path

from tests.cluster.programs import Running
from tests.doors.clients.java.java_programs import JavaPrograms
from tests.doors.clients.kafka_lines import KafkaPrograms

HERE = Path(__file__).parent
#: {version of the client: the folder of its pom.xml}
VERSIONS = {"3.9": "kafka_3", "4.4": "kafka_4"}


class JavaKafka(KafkaPrograms):
    """directory: for the files that programs are given."""

    def __init__(self, version: str, classes: Path, directory: Path) -> None:
        """classes: an empty directory."""
        super().__init__(directory)
        self.programs = JavaPrograms.compiled(HERE / VERSIONS[version] / "pom.xml", classes, HERE)

    def command(self, name: str, *arguments: str) -> list[str]:
        """name: of the class."""
        return self.programs.command(name, *arguments)

    def start(self, log: Path, name: str, *arguments: str) -> Running:
        return self.programs.start(log, name, *arguments, stdin=subprocess.PIPE)

    def tool(self, name: str, *arguments: str, given: str = "") -> str:
        """What a tool of Kafka's prints. name: of its class, below `org.apache.kafka.tools`."""
        return self.run(f"org.apache.kafka.tools.{name}", *arguments, given=given)
