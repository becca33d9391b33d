"""`oncelog admin topics prove`: its verdict is its exit code, and each finding is shown."""

import json
from dataclasses import replace

import pytest

from oncelog.core.ids import TopicId
from oncelog.metadata.rest.observing.proofs import ProofView
from oncelog.verify.proof import Part, TopicProof
from oncelog.verify.range_summary import Finding
from tests.cluster.cli.recorded_rest import RecordingServer, admin

PATH = "/admin/v2/persistent/public/default/orders/proof"
ASKED = TopicProof(TopicId("0f" * 16), "public/default/orders", "ann", 5, 1 << 20, 20).ranged(
    from_index=3, until_index=24, end=None, entries=10
)


def view(proof: TopicProof) -> dict[str, object]:
    return ProofView.of(proof).model_dump(mode="json")


def now(going: TopicProof | None, verdict: TopicProof | None) -> tuple[int, object]:
    shown = {"going": going and view(going), "verdict": verdict and view(verdict)}
    return 200, {"topic": ASKED.topic, "topic_id": ASKED.topic_id, **shown, "next_index": 41, "behind": 17}


def all_done() -> TopicProof:
    proof = ASKED
    for part in Part:
        proof = proof.done(part)
    return proof


def run(rest: RecordingServer, *words: str) -> tuple[int, str, str]:
    """(exit code, standard output, standard error)."""
    return admin(rest, "topics", "prove", *words)


def prove(rest: RecordingServer, *words: str) -> tuple[int, str, str]:
    return run(rest, "orders", *words)


def test_proved_topic_is_a_success(rest: RecordingServer) -> None:
    """With its range, and how many messages are behind it. An older verdict is not taken for this one."""
    rest.answers[PATH] = 200, view(ASKED)
    older = TopicProof(ASKED.topic_id, ASKED.topic, "ann", 1, 1 << 20, 20)
    for part in Part:
        older = older.done(part)
    rest.later[PATH] = [
        now(ASKED.taken("m", 6).begun(Part.ONCE).progressed(Part.ONCE, 7), older.concluded(4)),
        now(None, all_done().concluded(9)),
    ]
    code, out, errors = prove(rest, "--cpu-percent", "50")
    assert code == 0
    assert [word in out for word in ("proved", "index 3 to 23", "17")] == [True] * 3
    assert "running: once 7 of 10" in errors
    assert rest.asked[0] == ("POST", PATH, {"cpu_percent": 50})


@pytest.mark.parametrize("output", ["table", "json"])
def test_failed_proof_names_position_and_copies(rest: RecordingServer, output: str) -> None:
    """Exit code 1."""
    text = "its copies differ, by their digests: aaaaaaaa 01, bbbbbbbb 02"
    rest.answers[PATH] = 200, view(ASKED)
    failed = all_done().found(Part.COPIES, [Finding("copies", None, text)]).concluded(9)
    rest.later[PATH] = [now(None, failed)]
    code, out, _ = prove(rest, "-o", output)
    assert (code, "failed" in out, "bbbbbbbb 02" in out) == (1, True, True)
    if output == "json":
        assert json.loads(out)["verdict"]["findings_count"] == 1


def test_incomplete_proof_is_neither_a_success_nor_a_failure(rest: RecordingServer) -> None:
    """Exit code 2, and what was not read is shown."""
    rest.answers[PATH] = 200, view(ASKED)
    rest.later[PATH] = [now(None, all_done().left_out(Part.COPIES, ["storage node x did not answer"]).concluded(9))]
    code, out, _ = prove(rest)
    assert (code, "incomplete" in out, "storage node x" in out) == (2, True, True)


def test_proof_that_goes_on_when_the_wait_is_over_is_no_success(rest: RecordingServer) -> None:
    """Nor is one that was cancelled."""
    rest.answers[PATH] = 200, view(ASKED)
    rest.later[PATH] = [now(ASKED, None)]
    assert prove(rest, "--wait-seconds", "0")[0] == 1
    rest.answers[PATH] = 200, view(ASKED)
    rest.later[PATH] = [now(None, ASKED.cancelled(9))]
    assert prove(rest)[0] == 1


def test_proof_is_cancelled(rest: RecordingServer) -> None:
    """By whoever may begin it."""
    for answer, told in (
        (now(ASKED, None), "ends as cancelled"),
        (now(None, all_done().concluded(9)), "has ended, as proved"),
        (now(None, None), "no proof of topic orders goes on"),
    ):
        rest.answers[PATH] = answer
        code, out, _ = prove(rest, "--cancel")
        assert (code, told in " ".join(out.split())) == (0, True)
    assert {asked[0] for asked in rest.asked} == {"DELETE"}


# --- several topics ---------------------------------------------------------------------------------------------------

SPACES = {"shop": ["shop/orders", "shop/empty"], "till": ["till/eu"]}
TOPICS = {
    "shop/orders": ["shop/orders/placed", "shop/orders/placed-partition-1"],
    "shop/empty": [],
    "till/eu": ["till/eu/rung"],
}


def plant(rest: RecordingServer, **states: TopicProof | None) -> None:
    """The cluster, and how the proof of each topic ends, by its name; None: it is deleted."""
    rest.answers["/admin/v2/tenants"] = 200, list(SPACES)
    for tenant, spaces in SPACES.items():
        rest.answers[f"/admin/v2/namespaces/{tenant}"] = 200, spaces
        for space in spaces:
            rest.answers[f"/admin/v2/persistent/{space}?doors=true"] = 200, TOPICS[space]
    for name in (name for names in TOPICS.values() for name in names):
        verdict = states[name.rpartition("/")[2].replace("-", "_")]
        path = f"/admin/v2/persistent/{name}/proof"
        gone = 404, {"code": "topic_not_found", "detail": "gone"}
        rest.answers[path] = gone if verdict is None else (200, view(replace(ASKED, topic=name)))
        rest.later[path] = [] if verdict is None else [now(None, replace(verdict, topic=name))]


PROVED = all_done().concluded(9)
INCOMPLETE = all_done().left_out(Part.ONCE, ["the owner is away"]).concluded(9)
FAILED = all_done().found(Part.COPIES, [Finding("copies", None, "differ")]).concluded(9)


@pytest.mark.parametrize(
    ("other", "verdict", "code"), [(PROVED, "proved", 0), (INCOMPLETE, "incomplete", 2), (FAILED, "failed", 1)]
)
def test_all_topics_are_proved_one_after_the_other(
    rest: RecordingServer, other: TopicProof, verdict: str, code: int
) -> None:
    """With the same limits. The worst verdict is that of all; a topic that is deleted meanwhile is left out."""
    plant(rest, placed=INCOMPLETE if verdict == "failed" else PROVED, placed_partition_1=other, rung=None)
    done, out, errors = run(rest, "--all", "--bytes-per-second", "2097152", "-o", "json")
    answer = json.loads(out)
    assert (done, answer["verdict"]) == (code, verdict)
    assert [each["verdict"]["topic"] for each in answer["topics"]] == TOPICS["shop/orders"]
    assert "2 of 3: shop/orders/placed-partition-1" in errors
    bodies = [body for method, _, body in rest.asked if method == "POST"]
    assert bodies == [{"bytes_per_second": 2097152}] * 3


def test_namespace_is_proved(rest: RecordingServer) -> None:
    """And no topic of another one. Each finding is shown, with its topic."""
    plant(rest, placed=PROVED, placed_partition_1=FAILED, rung=PROVED)
    code, out, _ = run(rest, "--namespace", "shop/orders")
    assert code == 1
    assert [word in out for word in ("shop/orders/placed-partition-1", "differ", "till/eu")] == [True, True, False]


def test_proofs_of_a_namespace_are_cancelled(rest: RecordingServer) -> None:
    """Each that goes on."""
    plant(rest, placed=PROVED, placed_partition_1=PROVED, rung=PROVED)
    for name in TOPICS["shop/orders"]:
        rest.answers[f"/admin/v2/persistent/{name}/proof"] = now(ASKED, None)
    assert run(rest, "--namespace", "shop/orders", "--cancel")[0] == 0
    assert [method for method, _, _ in rest.asked].count("DELETE") == 2


def test_what_is_proved_is_named_once(rest: RecordingServer) -> None:
    """Neither nothing, nor a topic and all."""
    for words in ((), ("orders", "--all"), ("--namespace", "a/b", "--all")):
        code, _, errors = run(rest, *words)
        assert (code, "name a topic, or set --namespace or --all" in errors) == (2, True)
