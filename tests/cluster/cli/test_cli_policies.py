"""`oncelog admin policy` against a REST interface that records requests: paths, bodies, values in words, mistakes."""

import json

import pytest
from typer.testing import CliRunner

from oncelog.cli.admin.policies import TABLE
from oncelog.cli.app import app
from tests.cluster.cli.recorded_rest import Asked, RecordingServer, admin

CLUSTER = "/admin/v2/clusters/c1"
NAMESPACE = "/admin/v2/namespaces/public/orders"
OTHER = "/admin/v2/namespaces/public/x"
TOPIC = "/admin/v2/persistent/public/default/new"
QUOTA = {"limitSize": -1, "limitTime": -1, "policy": "producer_request_hold"}


def retention(minutes: int, size_mb: int) -> dict[str, int]:
    return {"retentionTimeInMinutes": minutes, "retentionSizeInMB": size_mb}


@pytest.mark.parametrize(
    ("words", "path", "body", "shown"),
    [
        ("public/orders deduplication off", f"{NAMESPACE}/deduplication", False, "off"),
        ("public/default/new deduplication on", f"{TOPIC}/deduplicationEnabled", True, "on"),
        ("persistent://public/default/new deduplication on", f"{TOPIC}/deduplicationEnabled", True, "on"),
        ("cluster autoTopicCreation off", f"{CLUSTER}/autoTopicCreation", False, "off"),
        ("public/orders retention time=7d size=10G", f"{NAMESPACE}/retention", retention(10_080, 10_240), ""),
        ("public/orders retention 90m", f"{NAMESPACE}/retention", retention(90, -1), "time=90m"),
        ("public/orders retention time=1w", f"{NAMESPACE}/retention", retention(10_080, -1), "time=7d"),
        ("public/orders retention size=1024M", f"{NAMESPACE}/retention", retention(-1, 1024), "size=1G"),
        ("public/orders retention forever", f"{NAMESPACE}/retention", retention(-1, -1), "forever"),
        ("public/orders retention off", f"{NAMESPACE}/retention", retention(0, 0), "off"),
        ("cluster message-ttl 90", f"{CLUSTER}/messageTTL", 90, "90s"),
        ("cluster message-ttl never", f"{CLUSTER}/messageTTL", 0, "never"),
        (
            "public/default/new backlog-quota size=500M then=refuse", f"{TOPIC}/backlogQuota",
            {**QUOTA, "limitSize": 524_288_000, "policy": "producer_exception"}, "",
        ),
        (
            "public/default/new backlog-quota size=4194304T time=24855d then=evict", f"{TOPIC}/backlogQuota",
            {"limitSize": 1 << 62, "limitTime": 24_855 * 86_400, "policy": "consumer_backlog_eviction"}, "",
        ),
        (
            "public/default/new backlog-quota time=1d then=producer_request_hold", f"{TOPIC}/backlogQuota",
            {**QUOTA, "limitTime": 86_400}, "time=1d then=hold",
        ),
        ("public/default/new backlog-quota none", f"{TOPIC}/backlogQuota", QUOTA, "none"),
        ("public/default/new max-unacked-ranges-to-persist 0", f"{TOPIC}/maxUnackedRangesToPersist", 0, "0"),
        ("public/default/new chosen-producer-expiry never", f"{TOPIC}/chosenProducerExpiry", 0, "never"),
        ("public/default/new assigned-producer-expiry 8h", f"{TOPIC}/assignedProducerExpiry", 28_800, "8h"),
        ("public/orders producer-lease-expiry 366d", f"{NAMESPACE}/producerLeaseExpiry", 31_622_400, "366d"),
        ("public/x max-known-producers-per-namespace 5", f"{OTHER}/maxKnownProducersPerNamespace", 5, ""),
        ("public/default/new max-known-producers-per-topic none", f"{TOPIC}/maxKnownProducersPerTopic", 0, "none"),
        ("public/default/new pulsar-accept-other-content on", f"{TOPIC}/pulsarAcceptOtherContent", True, "on"),
        ("public/default/new ack-state-bytes-max 64M", f"{TOPIC}/ackStateBytesMax", 64 << 20, "64M"),
    ],
)  # fmt: skip
def test_policy_is_set_and_shown_as_it_was_typed(
    rest: RecordingServer, words: str, path: str, body: object, shown: str
) -> None:
    """What `show` prints is what `set` takes; shown: where it was typed in another way."""
    rest.answers["/admin/v2/clusters"] = (200, ["c1"])
    place, name, *values = words.split()
    code, output, errors = admin(rest, "policy", "set", *words.split())
    assert (code, errors, rest.asked[-1]) == (0, "", ("POST", path, body))
    shown = shown or " ".join(values)
    assert output.endswith(f" of {place}: {shown}\n")
    rest.answers[f"{path}?applied=true"] = (200, {"value": body, "source": "topic"})
    code, output, _ = admin(rest, "policy", "show", place, name)
    assert (code, output.splitlines()[1].split()[1:]) == (0, [*shown.split(), "topic"])
    code, output, _ = admin(rest, "policy", "show", place, name, "-o", "json")
    assert {key: value for key, value in json.loads(output).items() if key != "policy"} == {
        "value": body, "source": "topic",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        ("public/orders deduplication", ("DELETE", f"{NAMESPACE}/deduplication", None)),
        ("public/default/new retention", ("DELETE", f"{TOPIC}/retention", None)),
        ("cluster messageTTL", ("DELETE", f"{CLUSTER}/messageTTL", None)),
    ],
)
def test_policy_is_unset(rest: RecordingServer, words: str, asked: Asked) -> None:
    """At the cluster, the answer says the default; below, that the next level decides."""
    rest.answers["/admin/v2/clusters"] = (200, ["c1"])
    code, output, _ = admin(rest, "policy", "unset", *words.split())
    assert (code, rest.asked[-1]) == (0, asked)
    assert ("the default applies, never" in output) == words.startswith("cluster")


def test_all_policies_of_a_place_are_shown(rest: RecordingServer) -> None:
    """A topic has no policy that counts over topics, or that creates it."""
    rest.answers["/admin/v2/clusters"] = (200, ["c1"])
    samples = {name: row.form.body(name, row.default.split()) for name, row in TABLE.items()}
    for base in (CLUSTER, NAMESPACE, TOPIC):
        for name, row in TABLE.items():
            last = "deduplicationEnabled" if (base, name) == (TOPIC, "deduplication") else row.rest
            rest.answers[f"{base}/{last}?applied=true"] = (200, {"value": samples[name], "source": "default"})
    for place, count in (("cluster", len(TABLE)), ("public/orders", len(TABLE)), ("public/default/new", 17)):
        code, output, errors = admin(rest, "policy", "show", place)
        lines = output.splitlines()
        assert (code, errors, lines[0].split(), len(lines)) == (0, "", ["policy", "value", "from"], count + 1)
        shown = [name for name in TABLE if any(line.split()[0] == name for line in lines)]
        assert (len(shown), all(TABLE[name].default in output for name in shown)) == (count, True)
        answers = json.loads(admin(rest, "policy", "show", place, "-o", "json")[1])
        assert [each["value"] for each in answers] == [samples[each["policy"]] for each in answers]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("orders retention 7d", "place: 'orders' is neither"),
        ("a/b/c/d retention 7d", "place:"),
        ("public/orders retenton 7d", "name: there is no policy 'retenton'; did you mean retention?"),
        ("public/default/new auto-topic-creation on", "name: auto-topic-creation is no policy of a topic"),
        ("public/orders deduplication yes", "deduplication: must be on or off, not 'yes'"),
        ("public/orders deduplication on off", "deduplication: takes one value, not 2"),
        ("public/orders retention soon", "retention: 'soon' is no number"),
        ("public/orders retention time=90s", "retention: time= counts in steps of 1m"),
        ("public/orders retention size=100K", "retention: size= counts in steps of 1M"),
        ("public/orders retention time=0", "retention: time=0 would keep nothing: use `off`"),
        ("public/orders retention time=1d time=2d", "retention: time= is there twice"),
        ("public/orders retention 7d 10G", "retention: '7d' is none of time=, size="),
        ("public/orders message-ttl 5x", "message-ttl:"),
        (
            "public/orders producer-lease-expiry 5s",
            "producer-lease-expiry: must be 10s to 366d (10 to 31622400), not 5s",
        ),
        ("public/orders producer-lease-expiry 367d", "producer-lease-expiry:"),
        ("public/orders chosen-producer-expiry 1h", "chosen-producer-expiry: must be 8h to"),
        ("public/orders max-known-producers-per-topic many", "max-known-producers-per-topic: 'many' is no number"),
        ("public/orders max-known-producers-per-topic ٣", "max-known-producers-per-topic:"),
        ("public/orders ack-state-bytes-max 65M", "ack-state-bytes-max: must be 0 to 64M"),
        ("public/orders backlog-quota size=1.5G then=hold", "backlog-quota:"),
        ("public/orders backlog-quota size=0 then=hold", "backlog-quota: must be 1 to 4194304T"),
        ("public/orders backlog-quota size=4194305T then=hold", "backlog-quota:"),
        ("public/orders backlog-quota time=24856d then=hold", "backlog-quota:"),
        ("public/orders backlog-quota then=hold", "backlog-quota: give size= or time="),
        ("public/orders backlog-quota size=1G", "backlog-quota: give size= or time="),
        ("public/orders backlog-quota size=1G then=explode", "backlog-quota: then=explode is none of hold"),
    ],
)
def test_mistake_is_told_before_anything_is_sent(rest: RecordingServer, words: str, told: str) -> None:
    """The message begins with the argument or the policy, and says what is allowed."""
    code, _, error = admin(rest, "policy", "set", *words.split())
    assert (code, rest.asked) == (1, [])
    assert f"error: {told}" in error


def test_help_lists_every_policy_within_a_screen() -> None:
    """60 lines of 80 columns."""
    result = CliRunner().invoke(app, ["admin", "policy", "--help"], terminal_width=80, env={"COLUMNS": "80"})
    lines = result.stdout.splitlines()
    assert (max(map(len, lines)) <= 80, len(lines) <= 60) == (True, True)
    assert all(f" {name}: " in result.stdout for name in TABLE)
