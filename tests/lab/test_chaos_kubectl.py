"""kubectl's answers as it gives them: the answer on standard output, warnings beside it, and an exit code."""

import os
from pathlib import Path

import pytest

from oncelog.lab.chaos.api_server import ApiServer, CommandFailed
from oncelog.lab.chaos.kubectl import Kubectl, run_command

pytestmark = pytest.mark.asyncio

NOT_NAMESPACED = "Warning: resource 'nodes' is not namespace scoped"


def kubectl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, output: str, errors: str = "", code: int = 0
) -> Kubectl:
    """A program of that name, first on the PATH, that says this and ends so."""
    program = tmp_path / "kubectl"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{output}\nEND\ncat >&2 <<'END'\n{errors}\nEND\nexit {code}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return Kubectl("logs", ApiServer.__new__(ApiServer))


@pytest.mark.parametrize(
    ("output", "errors", "code", "answer"),
    [
        ("yes", "", 0, True),
        ("no", "", 1, False),
        ("no", NOT_NAMESPACED, 1, False),
        ("yes", NOT_NAMESPACED, 0, True),
        ("no - no RBAC policy matched", f"{NOT_NAMESPACED}\n", 1, False),
    ],
)
async def test_a_right_is_what_kubectl_answers_whatever_it_warns_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str, errors: str, code: int, answer: bool
) -> None:
    """Whoever has rights in one namespace alone is warned about nodes, and `chaos run` died of the warning."""
    asked = kubectl(tmp_path, monkeypatch, output=output, errors=errors, code=code)
    assert await asked.may("list", "nodes") is answer


async def test_a_cluster_that_does_not_answer_is_no_missing_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What failed is told."""
    asked = kubectl(tmp_path, monkeypatch, output="", errors="Unable to connect to the server", code=1)
    with pytest.raises(CommandFailed, match="Unable to connect to the server"):
        await asked.may("list", "nodes")


async def test_warnings_are_no_part_of_what_a_command_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard output alone is read."""
    kubectl(tmp_path, monkeypatch, output='{"items": []}', errors="Warning: v1 Endpoints is deprecated")
    assert (await run_command("kubectl", "get", "pods")).strip() == '{"items": []}'
