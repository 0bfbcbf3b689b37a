"""The rules for the repository as a whole: sizes, names, versions, the lock, and what must not be in it."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.conftest import REPOSITORY

PACKAGES = ("data", "hardware", "policies", "sim", "robot_rl")
LONGEST_MODULE = 500
LARGEST_FILE = 5_000_000


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)


def tracked() -> list[Path]:
    """Every file in version control, or everything that is not hidden or made where there is no git."""
    done = subprocess.run(
        ["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    if done.returncode == 0 and done.stdout:
        names = [name for name in done.stdout.split("\0") if name]
        return [REPOSITORY / name for name in names if (REPOSITORY / name).is_file()]
    made = {"outputs", "site", "build", "dist"}
    found = (path.relative_to(REPOSITORY) for path in REPOSITORY.rglob("*") if path.is_file())
    return [
        REPOSITORY / path for path in found if not path.parts[0].startswith(".") and path.parts[0] not in made
    ]


def text_files() -> list[tuple[str, str]]:
    """(path, text) of every tracked file that is text."""
    texts = []
    for path in tracked():
        try:
            texts.append((str(path.relative_to(REPOSITORY)), path.read_text(encoding="utf-8")))
        except UnicodeDecodeError:
            continue
    return texts


def python_files() -> list[Path]:
    return [path for path in tracked() if path.suffix == ".py"]


def package_modules() -> list[Path]:
    return [
        path
        for path in tracked()
        if path.suffix == ".py" and path.relative_to(REPOSITORY).parts[0] in PACKAGES
    ]


def pyproject() -> dict:
    return tomllib.loads((REPOSITORY / "pyproject.toml").read_text())


def module_name(path: Path) -> str:
    parts = list(path.relative_to(REPOSITORY).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


# --- shape of the code


def test_no_module_is_longer_than_one_sitting():
    lengths = {p: len(p.read_text().splitlines()) for p in python_files()}
    too_long = {str(p.relative_to(REPOSITORY)): n for p, n in lengths.items() if n > LONGEST_MODULE}
    assert not too_long, f"split these modules (limit {LONGEST_MODULE} lines): {too_long}"


def test_the_library_prints_nothing():
    printing = [
        f"{path.relative_to(REPOSITORY)}:{node.lineno}"
        for path in package_modules()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert not printing, f"use logging, or a rich console in the command line: {printing}"


def test_every_module_says_what_it_is_for():
    silent = [module_name(p) for p in package_modules() if not ast.get_docstring(ast.parse(p.read_text()))]
    assert not silent


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_can_be_loaded(package):
    """Names in __all__ exist, once each; ruff keeps them sorted (RUF022)."""
    for path in package_modules():
        name = module_name(path)
        if name.split(".")[0] != package or "__all__" not in path.read_text():
            continue
        module = importlib.import_module(name)
        public = list(module.__all__)
        assert len(public) == len(set(public)), f"{name}.__all__ names something twice"
        missing = [entry for entry in public if not hasattr(module, entry)]
        assert not missing, f"{name}.__all__ promises {missing}"


def test_no_lazy_name_is_that_of_a_submodule():
    """`import robot_rl.x` puts the module at `robot_rl.x`, whatever the lazy name should have been."""
    import robot_rl

    submodules = {entry.stem for entry in (REPOSITORY / "robot_rl").iterdir()}
    assert not submodules & set(robot_rl.__all__)


# --- what must not be in version control


def test_no_machine_path_and_no_index_host():
    # Put together here so that this file does not find itself.
    forbidden = re.compile(
        "|".join(
            (
                r"(?<![\w.~$}])/" + r"(?:work|root)/",
                r"(?<![\w.])/" + r"home/(?!you/)\w+",
                "pypi" + r"\.org",
                "files.python" + "hosted",
                "download.py" + "torch",
                "extra-index" + "-url",
            )
        )
    )
    found = [
        f"{path}:{number}: {line.strip()[:80]}"
        for path, text in text_files()
        for number, line in enumerate(text.splitlines(), 1)
        if forbidden.search(line)
    ]
    assert not found, "\n".join(found)


def test_no_large_or_generated_file():
    large = {
        str(p.relative_to(REPOSITORY)): p.stat().st_size for p in tracked() if p.stat().st_size > LARGEST_FILE
    }
    assert not large
    names = {str(p.relative_to(REPOSITORY)) for p in tracked()}
    assert "uv.lock" not in names, "uv.lock names download hosts; requirements.lock is the lock"
    unwanted = [
        n
        for n in names
        if n.endswith((".pkl", ".pickle", ".pt", ".pyc")) or n.startswith(("outputs/", "site/"))
    ]
    assert not unwanted


# --- versions, lock, changelog


def test_version_strings_agree():
    version = pyproject()["project"]["version"]
    citation = re.search(r"^version: (\S+)", (REPOSITORY / "CITATION.cff").read_text(), re.MULTILINE)
    assert citation is not None
    assert citation[1].strip('"') == version
    if any(found.name == "robot-rl" for found in metadata.distributions()):
        assert metadata.version("robot-rl") == version, "run make setup again"
    released = re.findall(r"^## (\d+\.\d+\.\d+)", (REPOSITORY / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert not released or released[0] == version


def test_changelog_has_room_for_the_next_change():
    headings = re.findall(r"^## (.+)", (REPOSITORY / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == "Unreleased"


def locked() -> dict[str, str]:
    """Version of each package that the lock installs on Linux; a removed one is marked never."""
    lines = (REPOSITORY / "requirements.lock").read_text().splitlines()
    pins = [Requirement(line) for line in lines if line and line[0] not in "# "]
    linux = {"sys_platform": "linux", "platform_system": "Linux", "platform_machine": "x86_64"}
    return {canonicalize_name(pin.name): str(pin.specifier)[2:] for pin in pins if holds(pin, linux)}


def holds(pin: Requirement, environment: dict[str, str]) -> bool:
    return pin.marker is None or pin.marker.evaluate(environment)


def test_the_lock_fits_the_requirements():
    extras = re.search(r"for extra in ([a-z -]+);", (REPOSITORY / "scripts/lock.sh").read_text())
    assert extras is not None
    project = pyproject()["project"]
    wanted = list(project["dependencies"])
    for extra in extras[1].split():
        wanted += project["optional-dependencies"][extra]
    versions = locked()
    for requirement in map(Requirement, wanted):
        version = versions.get(canonicalize_name(requirement.name))
        assert version is not None, f"{requirement.name} is not locked; run make lock"
        assert requirement.specifier.contains(version), (
            f"{requirement} but {version} is locked; run make lock"
        )


def test_only_one_package_brings_cv2():
    assert {name for name in locked() if name.startswith("opencv")} == {"opencv-python-headless"}


def test_every_override_has_its_reason():
    before = ""
    for line in (REPOSITORY / "overrides.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            assert before.startswith("#"), f"say in a comment above it why {line!r} is overridden"
        before = line


# --- the README and the documentation tell the truth


def documents() -> list[tuple[str, str]]:
    return [(path, text) for path, text in text_files() if path.endswith(".md")]


def test_every_make_target_named_exists():
    targets = set(re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE))
    for path, text in documents():
        named = set(re.findall(r"(?:^ {4,}|^\$ |`)make ([a-z-]+)", text, re.MULTILINE))
        assert named <= targets, f"{path} names make targets that do not exist: {sorted(named - targets)}"


def test_shown_python_uses_names_that_exist():
    import robot_rl

    for path, text in documents():
        for block in re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            ast.parse(block)
            used = set(re.findall(r"\brobot_rl\.(\w+)", block))
            assert used <= set(robot_rl.__all__), f"{path} uses {sorted(used - set(robot_rl.__all__))}"


def test_links_between_documents_lead_somewhere():
    for path, text in documents():
        for target in re.findall(r"\]\(([^)#\s]+)", text):
            if re.match(r"[a-z]+:", target):
                continue
            assert (REPOSITORY / path).parent.joinpath(target).exists(), f"{path} links to {target}"


def test_the_page_about_peg_insertion_states_the_figures_of_the_code():
    from sim import peg_insert

    page = (REPOSITORY / "docs/tasks/peg-insert.md").read_text()
    spread = inspect.signature(peg_insert.PegInsert).parameters["estimate_std_m"].default
    assert f"**{1000 * spread:g} mm** per axis" in page
    assert f"**{1000 * peg_insert.CLEARANCE_M:g} mm** on each side" in page
    assert f"{peg_insert.MAX_FORCE_N:g} N" in page
    assert f"{1000 * peg_insert.MAX_PENETRATION_M:g} mm" in page


def test_the_two_first_commands_stand_in_the_readme():
    readme = (REPOSITORY / "README.md").read_text()
    assert re.search(r"^ {4}make demo$", readme, re.MULTILINE)
    assert re.search(r"^ {4}make test$", readme, re.MULTILINE)
    assert readme.count("<!-- demo:begin -->") == readme.count("<!-- demo:end -->") == 1
