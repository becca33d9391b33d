"""`oncelog lag`: the subscriptions with the largest backlogs, of many topics, with few calls."""

import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from oncelog.cli.admin.commands import LiveCall
from oncelog.cli.admin.rest import AT_ONCE_MAX
from oncelog.cli.admin.watching import Pace
from oncelog.cli.app import app
from oncelog.cli.live.backlogs import PAGE, Backlog, Backlogs
from oncelog.cli.live.columns import lines_of
from oncelog.cli.live.lag import lag_lines
from tests.cluster.cli.recorded_rest import RecordingServer, served

LIST = "/admin/v2/topics"
#: A busy machine may need more than the 5 s that a user waits.
PATIENT = ("--timeout", "60")
NOW_S = 1_795_977_372.0


@pytest.fixture
def rest() -> Iterator[RecordingServer]:
    with served() as server:
        yield server


def topic(name: str, backlog: int) -> dict[str, object]:
    """As the list has it."""
    return {
        "topic": f"public/default/{name}", "backlog_messages": backlog, "backlog_subscription": "billing",
        "oldest_unacked_ms": 1_000,
    }  # fmt: skip


def subscription(name: str, backlog: int, oldest_ms: int | None = 1_000, consumers: int = 0) -> dict[str, object]:
    return {"name": name, "msg_backlog": backlog, "oldest_unacked_ms": oldest_ms, "consumer_count": consumers}


def lists(
    rest: RecordingServer, topics: list[dict[str, object]], *, path: str = LIST, silent: tuple[object, ...] = ()
) -> None:
    """In pages."""
    after = ""
    for first in range(0, max(len(topics), 1), PAGE):
        following = None if first + PAGE >= len(topics) else f"p{first}"
        page = {"topics": topics[first : first + PAGE], "next_after": following, "silent_owners": list(silent)}
        rest.answers[f"{path}?state=backlog&limit={PAGE}{after}"] = (200, page)
        after = f"&after={following}"


def has(rest: RecordingServer, name: str, *subscriptions: dict[str, object], limit: int = 50) -> None:
    path = f"/admin/v2/persistent/public/default/{name}/subscriptionStats?sort=backlog&limit={limit}"
    rest.answers[path] = (200, {"subscriptions": list(subscriptions), "total": 9, "next_after": None})


def lag(rest: RecordingServer, *words: str, code: int = 0) -> Any:
    """The object of -o json, or what standard error says."""
    result = CliRunner().invoke(app, ["lag", *PATIENT, *words, "-o", "json", "--admin-url", rest.url])
    assert result.exit_code == code, (result.stdout, result.stderr, result.exception)
    return json.loads(result.stdout) if not code else result.stderr


def shown(answer: dict[str, Any]) -> list[tuple[str, str, int]]:
    return [
        (row["topic"].rpartition("/")[2], row["subscription"], row["msg_backlog"]) for row in answer["subscriptions"]
    ]


def test_largest_backlogs_of_five_thousand_topics_take_few_calls(rest: RecordingServer) -> None:
    """Five pages; and of subscriptions only the topics that can have one of those that are shown."""
    lists(rest, [topic(f"t{number:04}", 6_000 - number) for number in range(5_000)])
    for number in range(64):
        has(rest, f"t{number:04}", subscription("billing", 6_000 - number), subscription("audit", 7), limit=20)
    answer = lag(rest, "-n", "20")
    assert shown(answer) == [(f"t{number:04}", "billing", 6_000 - number) for number in range(20)]
    assert (answer["topics"], answer["more"]) == (5_000, True)
    asked = [path for _, path, _ in rest.asked]
    assert len([path for path in asked if path.startswith(LIST)]) == 5
    assert len(asked) <= 5 + 2 * 16


def test_subscription_of_a_topic_with_a_smaller_bound_is_not_missed(rest: RecordingServer) -> None:
    """The largest backlogs of partitions may be of different subscriptions: their sum is that of none."""
    parts = [f"o{number:02}-partition-{part}" for number in range(AT_ONCE_MAX) for part in (0, 1)]
    lists(rest, [topic("bills", 60), *(topic(each, 50) for each in parts)])
    for each in parts:
        has(rest, each, subscription(f"of-{each[-1]}", 50), limit=3)
    has(rest, "bills", subscription("mail", 60), limit=3)
    answer = lag(rest, "-n", "3")
    assert (shown(answer), answer["more"]) == ([("bills", "mail", 60), ("o00", "of-0", 50), ("o00", "of-1", 50)], True)


def test_partitions_are_one_row_with_their_sum_and_the_oldest_message(rest: RecordingServer) -> None:
    """Their sum ranks before a topic with more messages than each of them."""
    lists(rest, [topic("bills", 60), topic("orders-partition-0", 50), topic("orders-partition-1", 40)])
    has(rest, "bills", subscription("mail", 60))
    has(rest, "orders-partition-0", subscription("billing", 50, 9_000, consumers=1), subscription("idle", 0, None))
    has(rest, "orders-partition-1", subscription("billing", 40, 7_000, consumers=2))
    answer = lag(rest)
    assert shown(answer) == [("orders", "billing", 90), ("bills", "mail", 60)]
    assert (answer["subscriptions"][0]["oldest_unacked_ms"], answer["subscriptions"][0]["consumer_count"]) == (7_000, 3)
    assert not answer["more"]


def test_topic_that_moves_meanwhile_counts_with_what_the_list_has_said(rest: RecordingServer) -> None:
    """Nobody knows its consumers then. An owner that does not answer is named once."""
    silent = {"incarnation": "a" * 32, "address": "10.0.0.1:6652", "reason": "no answer within 3 s"}
    lists(rest, [topic("orders", 90)], silent=(silent,))
    path = "/admin/v2/persistent/public/default/orders/subscriptionStats?sort=backlog&limit=50"
    rest.answers[path] = (409, {"code": "conflict", "detail": "it has no owner"})
    result = CliRunner().invoke(app, ["lag", *PATIENT, "--admin-url", rest.url])
    assert result.exit_code == 0
    assert result.stdout.splitlines()[1].split()[:3] == ["public/default/orders", "billing", "90"]
    assert result.stdout.splitlines()[1].split()[-1] == "?"
    assert "10.0.0.1:6652 does not answer, and its topics are missing: no answer within 3 s" in result.stderr
    assert lag(rest)["silent_owners"] == [silent]


def test_place_is_a_namespace_or_a_topic(rest: RecordingServer) -> None:
    """With one slash a namespace. One that does not exist is an error, and not without a backlog."""
    lists(rest, [topic("orders", 5)], path=f"{LIST}/public/default")
    has(rest, "orders", subscription("billing", 5))
    assert shown(lag(rest, "public/default")) == [("orders", "billing", 5)]
    lists(rest, [], path=f"{LIST}/public/shop")
    rest.answers["/admin/v2/persistent/public/shop"] = (404, {"code": "namespace_not_found", "detail": "there is none"})
    assert "there is none [namespace_not_found]" in lag(rest, "public/shop", code=1)
    assert "[invalid_name]" in lag(rest, "a/b/c/d", code=1)
    assert "SUBSCRIPTION needs a TOPIC before it" in lag(rest, "public/shop", "billing", code=1)


def test_lag_of_a_topic_is_summed_over_partitions_and_has_idle_subscriptions(rest: RecordingServer) -> None:
    """The largest first."""
    path = "/admin/v2/persistent/public/default/orders"
    parts = {"o-partition-0": {"msg_backlog": 3, "oldest_unacked_ms": 50}, "o-partition-1": {"msg_backlog": 4}}
    rest.answers |= {
        f"{path}/subscriptions": (200, ["audit", "billing"]),
        f"{path}/subscription/audit": (200, {"o": {"msg_backlog": 0, "consumer_count": 2}}),
        f"{path}/subscription/billing": (200, parts),
    }
    answer = lag(rest, "orders")
    assert shown(answer) == [("orders", "billing", 7), ("orders", "audit", 0)]
    assert [row["oldest_unacked_ms"] for row in answer["subscriptions"]] == [50, None]
    assert shown(lag(rest, "orders", "audit")) == [("orders", "audit", 0)]


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

    def row(backlog: int, oldest_ms: int | None = None) -> Backlogs:
        return Backlogs([Backlog("public/default/orders", "billing", backlog, oldest_ms, 1)])

    lag_lines(row(50), paces, NOW_S, many=False, width=80)
    later = row(30, int((NOW_S - 140) * 1000))
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
