"""What programs do with Go's clients of Kafka: franz-go, IBM/sarama and segmentio/kafka-go."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.doors.clients.go_programs import built
from tests.doors.clients.kafka_lines import KafkaPrograms
from tests.doors.clients.kafka_programs import NO_OPTIONS, Options

PROGRAMS = Path(__file__).parent / "programs"
#: What Go has fetched and built is kept there.
KEPT = PROGRAMS.parents[4] / "build/kafka_clients"
#: kafka-go numbers no batches, so what it sends again is stored again.
LIBRARIES = ("franz-go", "sarama", "kafka-go")
IDEMPOTENT = ("franz-go", "sarama")


def build(directory: Path) -> str:
    """The program of all libraries. directory: an empty one."""
    return built(PROGRAMS, KEPT, directory)


class GoKafka(KafkaPrograms):
    """program: as `build` returns it. directory: for the files that programs are given."""

    def __init__(self, program: str, library: str, directory: Path) -> None:
        super().__init__(directory)
        self.program, self.library = program, library

    def command(self, name: str, *arguments: str) -> list[str]:
        return [self.program, self.library, name.lower(), *arguments]


class WithGo:
    """An administrator, as those in `kafka_administrators`. Each step is a program of its own."""

    def __init__(self, programs: GoKafka, servers: str, options: Options = NO_OPTIONS) -> None:
        self._programs, self._given = programs, programs.properties(servers, options)

    def _asked(self, *words: str) -> Any:
        return json.loads(self._programs.run("admin", self._given, *words))

    def _code(self, *words: str) -> int:
        answer = self._asked(*words)
        return 0 if answer is None else int(answer["code"])

    def create(self, topic: str, partitions: int, configs: Mapping[str, str] = {}) -> int:
        return self._code("create", topic, str(partitions), *(f"{name}={value}" for name, value in configs.items()))

    def partitions(self, topic: str) -> int:
        return int(self._asked("partitions", topic))

    def configs(self, topic: str) -> Mapping[str, str]:
        found: Mapping[str, str] = self._asked("configs", topic)
        return found

    def set_config(self, topic: str, name: str, value: str) -> int:
        return self._code("set-config", topic, name, value)

    def grow(self, topic: str, partitions: int) -> int:
        return self._code("grow", topic, str(partitions))

    def delete_records(self, topic: str, offset: int) -> int:
        return int(self._asked("delete-records", topic, str(offset)))

    def delete(self, topic: str) -> int:
        return self._code("delete", topic)

    def group(self, name: str, topic: str) -> Mapping[str, Any]:
        """Whether it is listed, its state, its members, its offsets in the topic; or the code of an error."""
        found: Mapping[str, Any] = self._asked("group", name, topic)
        return found

    def delete_group(self, name: str) -> int:
        return self._code("delete-group", name)

    def close(self) -> None:
        pass
