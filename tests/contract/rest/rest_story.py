"""The examples of docs/rest.md run in order, as one story, against a cluster: each must be answered as the page says.

A directory holds the files that the page creates: `anonymous.curl`, `admin.curl`, `checkout.curl`, options of
curl. The commands are sent by httpx, which is always there, or given to a shell and curl word for word.
"""

import re
import ssl
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

import httpx

from tests.contract.rest.rest_guide import Answer, Example, call_of, differences, examples
from tests.tidy.source import ROOT

PAGE = ROOT / "docs/rest.md"
#: The roles that the page speaks of, apart from nobody.
ADMIN, CHECKOUT = "admin", "checkout"
ANSWER_TIMEOUT_S = 60.0
#: (command, variables) -> what is answered
Sender = Callable[[str, Mapping[str, str]], Answer]


def page() -> list[Example]:
    return examples(PAGE.read_text())


def run_story(send: Sender, variables: Mapping[str, str], told: Sequence[Example] | None = None) -> int:
    """How many examples were answered as they are written. Raises AssertionError for the first that is not."""
    known = dict(variables)
    story = page() if told is None else told
    for example in story:
        answer = send(example.command, known)
        wrong = differences(example, answer, known)
        assert not wrong, f"docs/rest.md:{example.line}: {example.command}\n{wrong}\n{answer}"
    return len(story)


def write_options(directory: Path, tokens: Mapping[str, str], *connection: str) -> None:
    """The files of options that the page tells to make. connection: their lines that lead to the cluster."""
    shared = ["silent", "show-error", "include", *connection]
    (directory / "anonymous.curl").write_text("\n".join([*shared, ""]))
    for role, token in tokens.items():
        header = f'header = "Authorization: Bearer {token}"'
        (directory / f"{role}.curl").write_text("\n".join([*shared, header, ""]))


class Httpx:
    """Sends what curl would send."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        authorities = self._options("anonymous.curl").get("cacert", [])
        trusted = ssl.create_default_context(cafile=str(directory / authorities[0])) if authorities else True
        self._client = httpx.Client(verify=trusted, timeout=ANSWER_TIMEOUT_S, trust_env=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def __call__(self, command: str, variables: Mapping[str, str]) -> Answer:
        call = call_of(command, variables)
        options = self._options(call.config) if call.config else {}
        headers = dict(re.split(r":\s*", header, maxsplit=1) for header in options.get("header", []))
        url, extensions = call.url, {}
        for host, port, address in (rule.split(":") for rule in options.get("resolve", [])):
            if f"//{host}:{port}/" in url:
                url = url.replace(f"//{host}:", f"//{address}:")
                extensions = {"sni_hostname": host}
        answer = self._client.request(
            call.method, url, headers=headers | dict(call.headers), content=call.body, extensions=extensions
        )
        return Answer(answer.status_code, {name.lower(): value for name, value in answer.headers.items()}, answer.text)

    def _options(self, name: str) -> dict[str, list[str]]:
        """{option: its values} of a file."""
        found: dict[str, list[str]] = {}
        for line in (self._directory / name).read_text().splitlines():
            option, _, value = line.partition(" = ")
            found.setdefault(option, []).append(value.strip('"'))
        return found


class Curl:
    """Gives each command to a shell, as it is written."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def __call__(self, command: str, variables: Mapping[str, str]) -> Answer:
        done = subprocess.run(
            ["sh", "-c", command],
            cwd=self._directory,
            env={"PATH": "/usr/local/bin:/usr/bin:/bin", **variables},
            capture_output=True,
            text=True,
            timeout=ANSWER_TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, f"{command}\nended with {done.returncode}: {done.stderr}"
        head, _, body = done.stdout.partition("\n\n")
        status, *lines = head.splitlines()
        headers = dict(re.split(r":\s*", line, maxsplit=1) for line in lines)
        return Answer(int(status.split()[1]), {name.lower(): value for name, value in headers.items()}, body)
