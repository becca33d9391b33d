"""The events that the workload prints while it runs: one JSON object per line on standard output.

    ready      the topics exist and the clients start                       topics, clients, left_out {what: why}
    beat       twice a second                                               acked, steady_gap_ms_p999,
                                                                            clients {name: {gaps_ms, idle_ms}}
    route      a topic has a new owner                                      topic, address, owner_epoch
    takeover   a takeover as its owner reports it                           topic, owner_epoch, ms, phases_ms, …
    error      a client had an error that it does not retry by itself       client, error
    checking   the clients have stopped, and the log is read back           acked
    verdict    the last line                                                acked, stored, lost, …, violations

Each object has `event` and `at_s`, the clock of the workload in seconds. gaps_ms: the pauses between two
acknowledgements that ended since the last beat, each [length, time since its end]. idle_ms: time since the last
acknowledgement. steady_gap_ms_p999: see `AckPauses`.
"""

import json
import time
from collections.abc import Callable

Emit = Callable[..., None]


def emit(event: str, **facts: object) -> None:
    """Print one event at once."""
    print(json.dumps({"event": event, "at_s": round(time.time(), 6), **facts}), flush=True)
