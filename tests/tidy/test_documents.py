"""The documents are true where a program can tell: what they name exists, and their tables say what the code says."""

import ast
import dataclasses
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, cast

import pytest
import typer
from click.testing import CliRunner

import oncelog
from oncelog.cli.app import app
from oncelog.cli.default_command import RunByDefault
from oncelog.core import errors, format_errors
from oncelog.core.errors import BY_CODE
from oncelog.metadata.app import new_app
from oncelog.metadata.console.pages.what_to_do import ADVICE
from oncelog.metadata.replica import Coordination
from oncelog.metadata.rest.problems import problem
from oncelog.runtime import settings
from oncelog.runtime.telemetry import SpanName
from oncelog_spark.sink import options as sink_options
from oncelog_spark.source import options as source_options
from tests.tidy.documents import anchor_of, fenced, rest_calls, rows, section, text_of
from tests.tidy.source import CORES, PRODUCT, ROOT, repository

PACKAGES = tuple(ROOT / folder for folder in PRODUCT)
CHART_README = "deploy/helm/oncelog/README.md"
GUIDES = ("README.md", "docs/recipes.md", "docs/sdk.md", "docs/spark.md")
DOCUMENTS = (
    *(page.relative_to(ROOT).as_posix() for page in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])),
    CHART_README, "docker/README.md",
)  # fmt: skip
PAGES = tuple(name for name in DOCUMENTS if name.startswith("docs/"))
PICTURE_COLUMNS_MAX = 100
ROOMS = sorted({folder.name for top in PACKAGES for folder in top.iterdir() if (folder / "__init__.py").exists()})
each_document = pytest.mark.parametrize("name", DOCUMENTS)
each_page = pytest.mark.parametrize("name", PAGES)

_CODE = re.compile(r"`([^`\n]+)`")
_PATH = re.compile(r"[\w.-]+(/[\w.-]+)*(/|\.py|\.md|\.txt|\.toml|\.lock)(::\w+)?")
_MODULE = re.compile(rf"(?<![\w/<`.])(?:{'|'.join(ROOMS)})/[a-z_/]*[a-z_](?!\.py)\b")
_INSTRUMENTS = {"observe_count", "observe_level", "latency"}


def problems_of(reference: str) -> Iterator[str]:
    """What is wrong with a path, or path::test, that a document names."""
    path, _, test = reference.partition("::")
    found = [place / path for place in (ROOT, ROOT / "tests", ROOT / "services", *PACKAGES) if (place / path).exists()]
    if not found:
        yield f"{reference}: there is no such path"
    elif test and test not in functions_of(found[0]):
        yield f"{reference}: there is no such test"


@cache
def functions_of(path: Path) -> frozenset[str]:
    nodes = ast.walk(ast.parse(path.read_text()))
    return frozenset(node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


# --- paths, links, commands -------------------------------------------------------------------------------------------


@each_document
def test_named_paths_and_tests_exist(name: str) -> None:
    """A test that was renamed holds no hazard."""
    spans = _CODE.findall(text_of(name))
    paths = [span for span in spans if _PATH.fullmatch(span)]
    assert [wrong for path in paths for wrong in problems_of(path)] == []
    assert missing_modules(span for span in spans if _MODULE.fullmatch(span)) == []


def test_missing_path_and_test_are_found() -> None:
    """The control."""
    assert [len(list(problems_of(r))) for r in ("core/x.py", "tidy/test_documents.py::test_x", "core/ids.py")] == [
        1, 1, 0,
    ]  # fmt: skip


def missing_modules(names: Iterable[str]) -> list[str]:
    """Those that are neither a folder nor a module of a package."""
    return [
        name
        for name in names
        if not any((package / name).is_dir() or (package / f"{name}.py").exists() for package in PACKAGES)
    ]


@each_page
def test_page_says_who_needs_it_and_has_a_picture(name: str) -> None:
    """At its beginning, and as text that fits a terminal. The modules that pictures name exist."""
    assert text_of(name).split("\n\n")[1].startswith("For ")
    pictures = fenced(text_of(name))
    assert pictures
    lines = [line for picture in pictures for line in picture.splitlines()]
    assert [line for line in lines if len(line) > PICTURE_COLUMNS_MAX] == []
    assert missing_modules(_MODULE.findall("\n".join(lines))) == []


def test_map_of_folders_has_each_room_of_the_core() -> None:
    """And of each package. A folder in the map exists."""
    drawn = set(re.findall(r"(\w+)/(?=[\s:])", fenced(section("docs/code.md", "Folders"))[0])) - {"services"}
    folders = [folder for folder in (ROOT / "services").rglob("*") if (folder / "__init__.py").exists()]
    assert drawn - {folder.name for folder in folders} == set()
    rooms = {*PACKAGES, *(ROOT / core for core in CORES)}
    assert {folder.name for folder in folders if folder.parent in rooms or folder in PACKAGES} - drawn == set()


def test_drawn_state_machines_exist() -> None:
    """Each is a class of the core."""
    classes = {node.name for s in repository() if s.inside(*CORES) for node in s.nodes
               if isinstance(node, ast.ClassDef)}  # fmt: skip
    named = re.findall(r"^[│├└─ ]*([A-Z]\w+) {2}", fenced(section("docs/code.md", "State machines"))[0], re.MULTILINE)
    assert len(named) > 15
    assert set(named) - classes == set()


def anchors_of(document: Path) -> set[str]:
    """What the headings of a document are linked by."""
    headings = re.findall(
        r"^#+ (.*)$", re.sub(r"^```.*?^```", "", document.read_text(), flags=re.MULTILINE | re.DOTALL), re.MULTILINE
    )
    return set(map(anchor_of, headings))


@each_document
def test_relative_links_resolve(name: str) -> None:
    """To files, and to headings of documents."""
    for link in re.findall(r"\]\(([^)\s]+)\)", text_of(name)):
        if "://" not in link:
            path, _, anchor = link.partition("#")
            target = (ROOT / name).parent / path if path else ROOT / name
            assert target.exists(), link
            assert not anchor or anchor in anchors_of(target), link


@each_document
def test_make_targets_exist(name: str) -> None:
    """Those that a document tells to run."""
    known = set(re.findall(r"^([a-z-]+):", text_of("Makefile"), re.MULTILINE))
    told = re.findall(r"(?:^ {4}|`)make ([a-z-]+)", text_of(name), re.MULTILINE)
    assert set(told) - known == set()


def commands_of(text: str) -> list[list[str]]:
    """Every `oncelog …` that a document tells to type, split into words, without its comment."""
    lines = re.findall(r"^ {4}(?:.*\| )?oncelog (.*)$", text, re.MULTILINE)
    lines += [span.removeprefix("oncelog ") for span in _CODE.findall(text) if span.startswith("oncelog ")]
    return [line.split("#")[0].split() for line in lines]


def wrong_with(words: list[str]) -> str | None:
    """None when these words, as far as they are commands and options, are understood."""
    command: Any = _commands()
    path: list[str] = []
    rest = [word for word in words if word != "…"]
    while hasattr(command, "commands") and rest and not rest[0].startswith("-"):
        if rest[0] not in command.commands and isinstance(command, RunByDefault):
            break
        if rest[0] not in command.commands:
            return f"{' '.join(words)}: there is no command {rest[0]}"
        command = command.commands[rest[0]]
        path.append(rest.pop(0))
    if isinstance(command, RunByDefault) and rest:
        command = command.commands["run"]
    known = {"--help"} | {
        option for parameter in command.params for option in parameter.opts + parameter.secondary_opts
    }
    unknown = [word for word in rest if word.startswith("-") and word not in known]
    if unknown:
        return f"{' '.join(words)}: there is no option {unknown[0]}"
    refused = _help_fails(tuple(path))
    return f"{' '.join(words)}: {refused}" if refused else None


@cache
def _commands() -> Any:
    """The tree of all commands takes a tenth of a second, and the documents tell a thousand of them."""
    return typer.main.get_command(app)


@cache
def _help_fails(path: tuple[str, ...]) -> str:
    """What the command's --help says in place of the help; empty if it helps."""
    answer = CliRunner().invoke(_commands(), [*path, "--help"])
    return "" if answer.exit_code == 0 else answer.output


@each_document
def test_commands_exist(name: str) -> None:
    """With their options."""
    assert [wrong for words in commands_of(text_of(name)) if (wrong := wrong_with(words))] == []


@pytest.mark.parametrize("name", ADVICE)
def test_console_says_what_to_do_by_commands_and_sections_that_exist(name: str) -> None:
    """Its page of advice is a document, too."""
    advice = ADVICE[name]
    assert [wrong for each in advice.commands if (wrong := wrong_with(each.split()[1:]))] == []
    path, _, anchor = advice.read.partition("#")
    titles = re.findall("^#+ (.*)$", text_of(path), re.MULTILINE)
    assert anchor in map(anchor_of, titles), advice.read


def test_wrong_command_and_option_are_found() -> None:
    """The control; and the readme does tell commands."""
    assert wrong_with(["admin", "topic"])
    assert wrong_with(["read", "x", "--form"])
    assert len(commands_of(text_of("README.md"))) >= 5


@pytest.mark.parametrize("name", GUIDES)
def test_python_examples_compile(name: str) -> None:
    """As they stand, and they take nothing from the package that is not there."""
    examples = fenced(text_of(name), "python")
    assert examples
    for example in examples:
        tree = ast.parse(example)
        compile(tree, name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        taken = {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name)
                 and n.value.id == "oncelog"}  # fmt: skip
        assert taken - set(dir(oncelog)) == set()


# --- tables -----------------------------------------------------------------------------------------------------------


def test_settings_are_listed_with_their_defaults() -> None:
    """Each process's own, and those that all have."""
    text = section("docs/settings.md", "Settings")
    listed = {row[0].strip("`"): row[1].strip("`") for row in rows(text) if row[0].startswith("`ONCELOG_")}
    expected: dict[str, str] = {}
    for process in (*settings.ALL, settings.ProcessSettings):  # the last one's defaults are those that are told
        for field in dataclasses.fields(process):
            expected[settings.variable(field.name)] = settings.shown(field.default) or "empty"
    assert listed == expected
    assert [name for name in settings.CLIENT_VARIABLES if f"`{name}`" not in text] == []


def test_metrics_and_spans_are_listed() -> None:
    """Every instrument that a process makes, and every span."""
    made = [
        str(node.args[0].value)
        for source in repository()
        if source.is_python and source.inside(*PRODUCT)
        for node in source.nodes
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _INSTRUMENTS
        and node.args and isinstance(node.args[0], ast.Constant)
    ]  # fmt: skip
    assert len(made) > 20
    assert [name for name in made if f"`{name}`" not in section("docs/operating.md", "Metrics")] == []
    traces = " ".join(section("docs/operating.md", "Traces").split())
    assert [name.value for name in SpanName if f"`{name.value}`" not in traces] == []


def test_calls_of_rest_are_listed() -> None:
    """Every path with every method, and no others; once each, except publish, which two sections describe."""
    paths = new_app(cast("Coordination", None)).openapi()["paths"]
    expected = {(method.upper(), path) for path, operations in paths.items() for method in operations}
    listed = [(call.method, call.path) for call in rest_calls()]
    assert set(listed) == expected
    twice = {call for call in listed if listed.count(call) > 1}
    assert twice == {("POST", "/topics/persistent/{tenant}/{namespace}/{topic}")}


@pytest.mark.parametrize(("title", "names"), [("Reading", source_options.NAMES), ("Writing", sink_options.NAMES)])
def test_options_of_spark_are_listed(title: str, names: tuple[str, ...]) -> None:
    """Every option of the source and of the sink, and no others."""
    table = section("docs/spark.md", title).partition("\n\n| column")[0]
    cells = [row[0] for row in rows(table) if row[0] != "option"]
    assert sorted(name for cell in cells for name in _CODE.findall(cell)) == sorted(names)


def test_errors_are_listed_with_what_to_do() -> None:
    """Code, whether trying again is right, REST's status, and a word of advice."""
    expected: list[Any] = [
        [f"`{code}`", "yes" if error.retriable else "no", str(problem(error()).status_code)]
        for code, error in BY_CODE.items()
        if error.__module__ in (errors.__name__, format_errors.__name__)
    ]
    listed = [row for row in rows(section("docs/sdk.md", "Errors")) if row[1] in {"yes", "no"}]
    assert [row[:3] for row in listed] == expected
    assert [row[0] for row in listed if not row[3]] == []
