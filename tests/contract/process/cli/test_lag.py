"""`oncelog lag`: the subscriptions with the largest backlogs, of many topics, with few calls."""

import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from oncelog.cli.admin.commands import LiveCall
from oncelog.cli.admin.stats import Pace
from oncelog.cli.app import app
from oncelog.cli.live.backlogs import PAGE, Backlog, Backlogs
from oncelog.cli.live.columns import lines_of
from oncelog.cli.live.lag import lag_lines
from tests.cluster.cli.recorded_rest import RecordingServer, served

LIST = "/admin/v2/subscriptions"
TOPIC = "/admin/v2/persistent/public/default/orders"
#: A busy machine may need more than the 5 s that a user waits.
PATIENT = ("--timeout", "60")
NOW_S = 1_795_977_372.0


@pytest.fixture
def rest() -> Iterator[RecordingServer]:
    with served() as server:
        yield server


def row(
    topic: str, subscription: str, backlog: int, oldest_ms: int | None = 1_000, consumers: int = 0
) -> dict[str, object]:
    """As REST has it: of a topic or of a partition."""
    return {
        "topic": f"public/default/{topic}", "name": subscription, "msg_backlog": backlog,
        "oldest_unacked_ms": oldest_ms, "consumer_count": consumers,
    }  # fmt: skip


def lists(
    rest: RecordingServer, *rows: dict[str, object], path: str = LIST, query: str = "state=backlog",
    silent: tuple[object, ...] = (), unowned: object = None, waiting: object = None,
) -> None:  # fmt: skip
    """In pages."""
    after = ""
    for first in range(0, max(len(rows), 1), PAGE):
        following = None if first + PAGE >= len(rows) else f"p{first}"
        page = {
            "subscriptions": rows[first : first + PAGE], "next_after": following, "silent_owners": list(silent),
            "without_owner": unowned, "waiting": waiting,
        }  # fmt: skip
        rest.answers[f"{path}?{query}&limit={PAGE}{after}"] = (200, page)
        after = f"&after={following}"


def lag(rest: RecordingServer, *words: str, code: int = 0) -> Any:
    """The object of -o json, or what standard error says."""
    result = CliRunner().invoke(app, ["lag", *PATIENT, *words, "-o", "json", "--admin-url", rest.url])
    assert result.exit_code == code, (result.stdout, result.stderr, result.exception)
    return json.loads(result.stdout) if not code else result.stderr


def shown(answer: dict[str, Any]) -> list[tuple[str, str, int]]:
    return [
        (row["topic"].rpartition("/")[2], row["subscription"], row["msg_backlog"]) for row in answer["subscriptions"]
    ]


def test_largest_backlogs_of_five_thousand_topics_take_five_calls(rest: RecordingServer) -> None:
    """A page of a thousand subscriptions each."""
    lists(rest, *(row(f"t{number:04}", "billing", 6_000 - number) for number in range(5_000)))
    answer = lag(rest, "-n", "20")
    assert shown(answer) == [(f"t{number:04}", "billing", 6_000 - number) for number in range(20)]
    assert (answer["topics"], answer["more"]) == (5_000, True)
    assert len(rest.asked) == 5


def test_partitions_are_one_row_with_their_sum_and_the_oldest_message(rest: RecordingServer) -> None:
    """Their sum ranks before a topic with more messages than each of them, also where they are on the last page."""
    few = [row(f"t{number:04}", "mail", 50) for number in range(PAGE)]
    parts = [
        row("orders-partition-0", "billing", 50, 9_000, consumers=1),
        row("orders-partition-1", "billing", 40, 7_000, consumers=2),
    ]
    lists(rest, row("bills", "mail", 60), *few, *parts)
    answer = lag(rest, "-n", "2")
    assert shown(answer) == [("orders", "billing", 90), ("bills", "mail", 60)]
    assert (answer["subscriptions"][0]["oldest_unacked_ms"], answer["subscriptions"][0]["consumer_count"]) == (7_000, 3)
    assert (answer["topics"], answer["more"]) == (PAGE + 3, True)


def test_subscription_that_moves_to_a_later_page_meanwhile_counts_once(rest: RecordingServer) -> None:
    """With the figures of the later page."""
    many = [row(f"t{number:04}", "billing", 90) for number in range(PAGE)]
    lists(rest, *many, row("t0000", "billing", 30))
    answer = lag(rest, "-n", "10000")
    assert (len(answer["subscriptions"]), shown(answer)[-1]) == (PAGE, ("t0000", "billing", 30))


def test_owner_that_does_not_answer_is_named_once(rest: RecordingServer) -> None:
    """By address and reason: its topics are missing."""
    silent = {"incarnation": "a" * 32, "address": "10.0.0.1:6652", "reason": "no answer within 3 s"}
    lists(rest, row("orders", "billing", 90), silent=(silent,))
    result = CliRunner().invoke(app, ["lag", *PATIENT, "--admin-url", rest.url])
    assert result.exit_code == 0
    assert result.stdout.splitlines()[1].split()[:3] == ["public/default/orders", "billing", "90"]
    assert result.stderr.count("10.0.0.1:6652 does not answer, and its topics are missing: no answer within 3 s") == 1
    assert lag(rest)["silent_owners"] == [silent]


def test_topics_without_an_owner_are_named_below_the_table(rest: RecordingServer) -> None:
    """A cluster that nothing has opened since its start is no cluster without backlogs. An unknown number is said,
    too."""

    def table() -> list[str]:
        return CliRunner().invoke(app, ["lag", *PATIENT, "--admin-url", rest.url]).stdout.splitlines()

    unowned = {"topics": 40, "first": ["public/default/a", "public/default/b\x1b[2J"]}
    lists(rest, unowned=unowned)
    *_, last = table()
    assert last.startswith("40 topics have no owner and are not counted: public/default/a, public/default/b")
    assert last.endswith(", …")
    assert "\x1b" not in last
    assert lag(rest)["without_owner"] == unowned
    lists(rest, row("orders", "billing", 9), unowned={"topics": 1, "first": ["public/default/a"]})
    assert table()[-1] == "1 topic has no owner and is not counted: public/default/a"
    lists(rest, row("orders", "billing", 9), unowned={"topics": 0, "first": []})
    assert table()[-1].split()[0] == "public/default/orders"
    lists(rest, row("orders", "billing", 9))
    assert table()[-1] == "whether topics have no owner, and are not counted, is not known yet"


def test_topics_that_are_not_served_yet_are_named_below_the_table(rest: RecordingServer) -> None:
    """They have an owner, and nothing of their backlog is known there."""
    none = {"topics": 0, "first": []}
    waiting = {"topics": 40, "first": ["public/default/a", "public/default/b\x1b[2J"]}
    lists(rest, unowned={"topics": 1, "first": ["public/default/lost"]}, waiting=waiting)
    result = CliRunner().invoke(app, ["lag", *PATIENT, "--admin-url", rest.url])
    unowned, line = result.stdout.splitlines()[-2:]
    assert unowned == "1 topic has no owner and is not counted: public/default/lost"
    assert line.startswith("40 topics are not served yet and are not counted: public/default/a, public/default/b")
    assert line.endswith(", …")
    assert "\x1b" not in line
    assert lag(rest)["waiting"] == waiting
    lists(rest, row("orders", "billing", 9), unowned=none, waiting={"topics": 1, "first": ["public/default/a"]})
    result = CliRunner().invoke(app, ["lag", *PATIENT, "--admin-url", rest.url])
    assert result.stdout.splitlines()[-1] == "1 topic is not served yet and is not counted: public/default/a"


def test_place_is_a_namespace_or_a_topic(rest: RecordingServer) -> None:
    """With one slash a namespace. One that does not exist is an error, and not without a backlog."""
    lists(rest, row("orders", "billing", 5), path=f"{LIST}/public/default")
    assert shown(lag(rest, "public/default")) == [("orders", "billing", 5)]
    lists(rest, path=f"{LIST}/public/shop")
    rest.answers["/admin/v2/persistent/public/shop"] = (404, {"code": "namespace_not_found", "detail": "there is none"})
    assert "there is none [namespace_not_found]" in lag(rest, "public/shop", code=1)
    assert "[invalid_name]" in lag(rest, "a/b/c/d", code=1)
    assert "SUBSCRIPTION needs a TOPIC before it" in lag(rest, "public/shop", "billing", code=1)


def test_lag_of_a_topic_is_summed_over_partitions_and_has_idle_subscriptions(rest: RecordingServer) -> None:
    """The largest first, in two calls. The list also has topics whose names contain this one."""
    rest.answers[f"{TOPIC}/subscriptions"] = (200, ["audit", "billing"])
    parts = [row("orders-partition-0", "billing", 3, 50), row("orders-partition-1", "billing", 4, None)]
    idle = row("orders-partition-0", "audit", 0, None, consumers=2)
    other = row("orders-of-today", "billing", 90)
    of_topic = "topic=public%2Fdefault%2Forders"
    lists(rest, other, *parts, idle, path=f"{LIST}/public/default", query=of_topic)
    answer = lag(rest, "orders")
    assert shown(answer) == [("orders", "billing", 7), ("orders", "audit", 0)]
    assert [row["oldest_unacked_ms"] for row in answer["subscriptions"]] == [50, None]
    assert len(rest.asked) == 2
    lists(rest, *parts, idle, path=f"{LIST}/public/default", query=f"{of_topic}&subscription=audit")
    assert shown(lag(rest, "orders", "audit")) == [("orders", "audit", 0)]


def test_partition_is_a_topic_of_its_own(rest: RecordingServer) -> None:
    """Under its own name, and without the others."""
    rest.answers[f"{TOPIC}-partition-1/subscriptions"] = (200, ["billing"])
    rows = [row("orders-partition-1", "billing", 4), row("orders-partition-10", "billing", 3)]
    lists(rest, *rows, path=f"{LIST}/public/default", query="topic=public%2Fdefault%2Forders-partition-1")
    assert shown(lag(rest, "orders-partition-1")) == [("orders-partition-1", "billing", 4)]


def test_topic_or_subscription_that_does_not_exist_is_an_error(rest: RecordingServer) -> None:
    """And not one without a backlog."""
    rest.answers[f"{TOPIC}/subscriptions"] = (200, ["billing"])
    assert "has no subscription mail [subscription_not_found]" in lag(rest, "orders", "mail", code=1)
    rest.answers[f"{TOPIC}/subscriptions"] = (404, {"code": "topic_not_found", "detail": "there is none"})
    assert "there is none [topic_not_found]" in lag(rest, "orders", code=1)


@pytest.mark.parametrize(
    "words", ["-n 0", "-n 10001", "--interval -1", "--interval nan", "--timeout nan", "--timeout inf", "--timeout -1"]
)
def test_wrong_numbers_are_refused(rest: RecordingServer, words: str) -> None:
    """Also those that pass limits and that no clock takes."""
    lag(rest, *words.split(), code=2)
    assert rest.asked == []


def test_cluster_that_does_not_answer_is_an_error_within_five_seconds() -> None:
    """It accepts connections, and says nothing."""
    assert LiveCall().timeout == 5.0
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        result = CliRunner().invoke(app, ["lag", "--timeout", "0.2", "--admin-url", url])
    assert result.exit_code == 4
    assert "within 0.2 s" in result.stderr


def test_table_shows_ages_and_how_a_backlog_changes() -> None:
    paces: dict[tuple[str, str], Pace] = {}

    def look(backlog: int, oldest_ms: int | None = None) -> Backlogs:
        return Backlogs([Backlog("public/default/orders", "billing", backlog, oldest_ms, 1)])

    lag_lines(look(50), paces, NOW_S, many=False, width=80)
    later = look(30, int((NOW_S - 140) * 1000))
    title, line = lag_lines(later, paces, NOW_S + 10, many=False, width=80)
    assert title.split() == ["subscription", "backlog", "per", "s", "oldest", "in", "use"]
    assert line.split() == ["billing", "30", "-2.0", "2", "min", "ago", "1"]
    assert lag_lines(Backlogs([]), paces, NOW_S, many=True, width=80) == ["no subscription has a backlog"]


def test_names_are_cut_to_the_width_and_figures_are_whole() -> None:
    """In the middle. What moves the cursor or turns the text is not printed."""
    rows = [("public/default/" + "x" * 80 + "-end", "s" * 200, "1,000,000"), ("a\x1b[2J\u202eb", "c", "7")]
    title, long, hostile = lines_of(("topic", "subscription", "backlog"), rows, 2, 80)
    assert max(map(len, (title, long, hostile))) == 80
    assert (long[:8], "x-end" in long, "…" in long, long.endswith("1,000,000")) == ("public/d", True, True, True)
    assert "\x1b" not in hostile
    assert "\u202e" not in hostile
    assert max(map(len, lines_of(("topic", "subscription", "backlog"), rows, 2, None))) > 300
