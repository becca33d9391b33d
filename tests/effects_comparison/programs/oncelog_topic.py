"""Oncelog, TopicEffects: topic to topic."""

import os
from typing import Any

import oncelog
from oncelog_effects import TopicEffects
from oncelog_effects.topic_store import Output

TOPIC = os.environ["TOPIC"]


@oncelog.process(TOPIC, subscription="effects", effects=TopicEffects([f"{TOPIC}-out"]))
def copy(message: oncelog.Message) -> Any:
    yield Output(f"{TOPIC}-out", message.value)


if __name__ == "__main__":
    oncelog.run(copy)
