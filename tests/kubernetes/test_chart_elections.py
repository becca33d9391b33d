"""ZooKeeper's settings against what lives on it: a leader that is lost must not cost the owners their sessions."""

import re

from oncelog.stores.zookeeper import SESSION_TIMEOUT_MS
from tests.kubernetes.chart import one

#: How often ZooKeeper's own code tries to connect to whom it has chosen.
CONNECT_TRIES = 5


def test_an_election_that_failed_ends_within_a_session() -> None:
    """One who was chosen and is followed by nobody holds the others off for initLimit ticks. In 20 s every topic would
    lose its owner."""
    config = one("default", "ConfigMap", "oncelog-zookeeper")["data"]["zoo.cfg"]
    setting = {key: int(value) for key, value in re.findall(r"^(\w+)=(\d+)$", config, re.MULTILINE)}
    assert setting["tickTime"] * setting["initLimit"] < SESSION_TIMEOUT_MS


def test_who_was_chosen_is_waited_for_longer_than_it_takes_to_listen() -> None:
    """With ZooKeeper's own 100 ms a busy machine's followers gave up before the leader's port was open."""
    start = one("default", "ConfigMap", "oncelog-zookeeper")["data"]["start.sh"]
    (pause_ms,) = re.findall(r"-Dzookeeper\.leaderConnectDelayDuringRetryMs=(\d+)", start)
    assert CONNECT_TRIES * int(pause_ms) >= 2_000
