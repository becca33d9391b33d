"""`oncelog admin storage` for one node: its removal, and whether it may be replaced."""

import json
from collections.abc import Sequence

import pytest

from tests.cluster.cli.recorded_rest import RecordingServer, admin

NODE = "0a1b" * 8
NODES = "/admin/v2/storage/nodes"
HOST = "oncelog-storage-3.oncelog-storage-headless.logs.svc"


def node_report(
    incarnation: str, state: str, *, host: str = HOST, ledgers: int = 0, waits_for: Sequence[str] = ()
) -> dict[str, object]:
    return {
        "incarnation": incarnation, "address": f"{host}:6650", "state": state, "ledgers": ledgers,
        "waits_for": list(waits_for),
    }  # fmt: skip


def test_decommission_takes_several_nodes_and_waits_until_they_are_removed(rest: RecordingServer) -> None:
    """By incarnation and by host, as the pre-upgrade Job of the chart names them. A former directory of the host is
    not touched."""
    other = "c" * 32
    reports = [node_report(NODE, "draining", ledgers=4), node_report(other, "draining", host="other", ledgers=3)]
    rest.answers[NODES] = (200, [*reports, node_report("d" * 32, "retired")])
    code, _, errors = admin(rest, "storage", "decommission", other, HOST, "--wait", "--wait-seconds", "1")
    asked = [path for method, path, _ in rest.asked if method == "POST"]
    assert asked == [f"{NODES}/{node}/decommission" for node in (other, NODE)]
    assert code == 1
    assert "2 of 2 storage nodes draining, 7 copies of ledgers to move" in errors
    rest.answers[NODES] = (200, [node_report(other, "removed", host="other")])
    code, output, _ = admin(rest, "storage", "decommission", other, "--wait")
    assert (code, output.strip()) == (0, f"{other}: removed from the cluster")


def test_decommission_says_what_it_waits_for_and_how_to_give_up(rest: RecordingServer) -> None:
    """Also when no copy is left to move. An older metadata service does not say it."""
    reason = "ledger 9 of public/default/orders: no list that can be read names it"
    rest.answers[NODES] = (200, [node_report(NODE, "draining", waits_for=[reason])])
    code, _, errors = admin(rest, "storage", "decommission", HOST, "--wait", "--wait-seconds", "1")
    assert code == 1
    assert f"0 copies of ledgers to move; waiting for {reason}" in errors
    assert f"{HOST}:6650 waits for {reason}" in errors
    assert "keep them with --cancel" in errors
    rest.answers[NODES] = (200, [{**node_report(NODE, "draining"), "waits_for": None}])
    assert admin(rest, "storage", "decommission", HOST, "--wait", "--wait-seconds", "1")[0] == 1


def test_decommission_of_a_host_without_a_node_is_no_error(rest: RecordingServer) -> None:
    """The Job may run again after its nodes are removed, or for a pod that never started."""
    rest.answers[NODES] = (200, [node_report(NODE, "removed")])
    for host in (HOST, "oncelog-storage-9.oncelog-storage-headless.logs.svc"):
        code, _, errors = admin(rest, "storage", "decommission", host, "--wait")
        assert (code, [method for method, _, _ in rest.asked if method != "GET"]) == (0, [])
        assert f"{host}: no storage node has this host" in errors


@pytest.mark.parametrize(("allowed", "exit_code"), [(True, 0), (False, 1)])
def test_may_replace_tells_scripts_by_its_exit_code(rest: RecordingServer, allowed: bool, exit_code: int) -> None:
    """The reasons are printed in either case."""
    answer = {"may_replace": allowed, "incarnation": NODE, "reasons": [] if allowed else ["ledger 3: alone"]}
    rest.answers[f"/admin/v2/storage/nodes/{NODE}/may-replace"] = (200, answer)
    code, output, _ = admin(rest, "storage", "may-replace", NODE, "-o", "json")
    assert (code, json.loads(output)) == (exit_code, answer)
    code, output, _ = admin(rest, "storage", "may-replace", NODE)
    assert code == exit_code
    assert allowed or "ledger 3: alone" in output


def test_may_replace_takes_a_host(rest: RecordingServer) -> None:
    """Of a pod, whose incarnation changes with its volume."""
    answer = {"may_replace": True, "incarnation": NODE, "reasons": []}
    rest.answers[NODES] = (200, [node_report(NODE, "live"), node_report("d" * 32, "retired")])
    rest.answers[f"{NODES}/{NODE}/may-replace"] = (200, answer)
    code, output, _ = admin(rest, "storage", "may-replace", HOST, "-o", "json")
    assert (code, json.loads(output)) == (0, answer)
    code, _, errors = admin(rest, "storage", "may-replace", "other.host")
    assert code == 1
    assert "no storage node is registered under other.host" in errors
