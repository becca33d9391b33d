"""`oncelog read` with a filter, from the end, in a format; `oncelog produce` with a key and properties."""

import json
import re
from collections.abc import Sequence
from typing import NamedTuple

import pytest

import oncelog
from oncelog.client.reading import search
from tests.cluster.cluster_fixture import Cluster

#: More than one step backwards, and more than one entry.
COUNT = 3 * search.STEP_MIN


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


def run(cluster: Cluster, *words: str) -> Done:
    done = cluster.run(*words)
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.fixture(scope="module")
def topic(cluster: Cluster) -> str:
    """Orders of two producers, in batches of some; the key says at which table."""
    with oncelog.Client(cluster.url) as client:
        one, two = (client.create_producer("searched", producer_name=name) for name in ("till-1", "till-2"))
        for begin in range(0, COUNT, 16):
            numbers = range(begin, begin + 16)
            values = [json.dumps({"order": each, "lines": [{"sku": f"x-{each % 7}"}]}).encode() for each in numbers]
            producer = two if begin % 64 == 0 else one
            producer.send_many(values, keys=[f"table-{each % 10}" for each in numbers])
    return "searched"


def orders(output: str) -> list[int]:
    return [json.loads(line)["order"] for line in output.splitlines()]


@pytest.mark.parametrize(
    ("options", "holds"),
    [
        (["--key", "table-4"], lambda each: each % 10 == 4),
        (["--filter", '.lines[0].sku == "x-3"'], lambda each: each % 7 == 3),
        (["--text", '"order": 76'], lambda each: str(each).startswith("76")),
        (["--producer-name", "till-2"], lambda each: each % 64 < 16),
        (["--producer-name", "till-2", "--filter", ".order >= 700", "--key", "table-5"],
         lambda each: each % 64 < 16 and each >= 700 and each % 10 == 5),
        (["--key", "nobody"], lambda _: False),
    ],
)  # fmt: skip
def test_read_prints_what_the_filter_wants_in_both_directions(
    cluster: Cluster, topic: str, options: Sequence[str], holds: object
) -> None:
    """And says at how many messages it has looked."""
    assert callable(holds)
    expected = [each for each in range(COUNT) if holds(each)]
    done = run(cluster, "read", topic, *options)
    assert (done.returncode, orders(done.stdout)) == (0, expected)
    assert done.stderr.strip().endswith(
        f"searched {COUNT} messages (public/default/searched: index 0 to {COUNT - 1}): {len(expected)} found"
    )
    done = run(cluster, "read", topic, *options, "--limit", "3")
    assert orders(done.stdout) == expected[:3]
    assert f": {len(expected[:3])} found" in done.stderr
    done = run(cluster, "read", topic, *options, "-n", "3", "--from-end")
    assert (done.returncode, orders(done.stdout)) == (0, expected[-3:])
    looked = re.search(r"searched (\d+) messages", done.stderr)
    assert looked is not None
    is_near = len(expected) >= 3 and expected[-3] >= COUNT - search.STEP_MIN
    assert (int(looked[1]) == search.STEP_MIN) == is_near


def test_last_messages_are_printed_without_a_filter(cluster: Cluster, topic: str) -> None:
    """Also when there are fewer than wanted. Of an empty topic nothing."""
    assert orders(run(cluster, "read", topic, "-n", "2", "--from-end").stdout) == [COUNT - 2, COUNT - 1]
    assert orders(run(cluster, "read", topic, "-n", str(COUNT + 9), "--from-end").stdout) == list(range(COUNT))
    with oncelog.Client(cluster.url) as client:
        client.create_producer("searched-empty").close()
    done = run(cluster, "read", "searched-empty", "-n", "2", "--from-end")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_key_and_properties_are_published_and_a_format_prints_them(cluster: Cluster) -> None:
    words = ["-m", "50%", "-m", "b", "--key", "k", "--property", "a=b=c", "--property", "d="]
    assert run(cluster, "produce", "formatted", *words, "--producer-name", "till").returncode == 0
    done = run(cluster, "read", "formatted", "-f", r"%i\t%k %v %% %n %s %p")
    assert done.stdout.splitlines() == [
        '0\tk 50% % till 0 {"a": "b=c", "d": ""}', '1\tk b % till 1 {"a": "b=c", "d": ""}',
    ]  # fmt: skip
    done = run(cluster, "read", "formatted", "--format", r"%m %t\0", "-n", "1")
    assert re.fullmatch(r"\d+:\d+:0 \d{4}-\d\d-\d\dT[0-9:.]+\+00:00\0", done.stdout)
    wrong = run(cluster, "produce", "formatted", "-m", "x", "--property", "a")
    assert (wrong.returncode, "--property is NAME=VALUE, not 'a'" in wrong.stderr) == (1, True)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["-f", "%q"], "format: %q is not known. Known: %v, %k"),
        (["-f", "%"], "format: % is not known"),
        (["--filter", "order == 1"], "filter: a path such as .order"),
        (["-f", "%v", "-o", "json"], "--format and -o cannot be combined"),
        (["--on-encrypted", "pass"], "--on-encrypted pass needs -o json"),
        (["--on-encrypted", "skip"], "'skip' is not one of 'raise', 'pass'"),
        (["--from-end"], "--from-end needs --limit"),
        (["--from-end", "-n", "3", "--follow"], "--from-end needs --limit"),
        (["--from-end", "-n", "3", "--from", "1:2"], "--from-end needs --limit"),
    ],
)
def test_mistake_is_told(cluster: Cluster, topic: str, options: Sequence[str], told: str) -> None:
    done = run(cluster, "read", topic, *options)
    assert (done.returncode in {1, 2}, done.stdout) == (True, "")
    assert told in done.stderr.replace("\n", " ")


def test_sdk_finds_a_message_by_its_producer_and_sequence_id(cluster: Cluster, topic: str) -> None:
    """Of any age; and says what became of an id that is nowhere."""
    with oncelog.Client(cluster.url) as client:
        found = [
            client.find_message(topic, producer_name=name, sequence_id=number)
            for name, number in (("till-2", 0), ("till-2", COUNT), ("nobody", 0))
        ]
        ((first,), (above,), (unknown,)) = found
        assert (first.state, first.index, first.topic) == ("stored", 0, f"public/default/{topic}")
        assert first.message_id is not None
        assert (above.state, above.message_id, above.index) == ("not_stored", None, None)
        assert unknown.state == "unknown_producer"
        with client.search(topic, key="table-4", backwards=True, limit=2) as last:
            wanted = [each for each in range(COUNT) if each % 10 == 4][-2:]
            assert [json.loads(bytes(each.value))["order"] for each in last] == wanted[::-1]
        with pytest.raises(oncelog.errors.InvalidArgument, match="sequence_id"):
            client.find_message(topic, producer_name="till-2", sequence_id=-1)
        with pytest.raises(oncelog.errors.TopicNotFound):
            client.find_message("missing", producer_name="till-2", sequence_id=0)
