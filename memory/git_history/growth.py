"""What a project is made of, and how that grew (seed 004, "Git History Analysis", steps 8 and 9): of the files at the
head, and at the last commit of the main line before the time that was looked at.

Languages are those that Pygments knows by a file's name. Frameworks are those that manifests name.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import PurePosixPath

from memory.git_history.facts import Deadline, Fact
from memory.git_history.figures import is_test
from memory.git_history.repository import Commit, Repository

POINTS = 6  # at which files are counted, the ends included
_LARGEST = 1_000_000  # bytes of a manifest
_DEEPEST = 3  # folders above a manifest
# Of Pygments' names those that are no language, or are called otherwise by people.
_NO_LANGUAGE = frozenset({"Text only", "Text output"})
_CALLED = {"Docker": "Dockerfile", "Bash": "Shell"}
_TOOLS = {
    "pyproject.toml": "Python packaging",
    "setup.py": "Python packaging",
    "requirements.txt": "pip",
    "package.json": "npm",
    "pnpm-lock.yaml": "pnpm",
    "yarn.lock": "Yarn",
    "tsconfig.json": "TypeScript",
    "go.mod": "Go modules",
    "Cargo.toml": "Cargo",
    "pom.xml": "Maven",
    "build.gradle": "Gradle",
    "build.gradle.kts": "Gradle",
    "Gemfile": "Bundler",
    "composer.json": "Composer",
    "mix.exs": "Mix",
    "CMakeLists.txt": "CMake",
    "Makefile": "Make",
    "Dockerfile": "Docker",
    "docker-compose.yml": "Docker Compose",
    "compose.yaml": "Docker Compose",
    ".pre-commit-config.yaml": "pre-commit",
    "Jenkinsfile": "Jenkins",
    ".gitlab-ci.yml": "GitLab CI",
    "flake.nix": "Nix",
}
_TOOL_FOLDERS = {".github/workflows/": "GitHub Actions", ".circleci/": "CircleCI", "terraform/": "Terraform"}
# Names of packages that tell how a project is built; what else it uses is of no interest here.
_FRAMEWORKS = {
    "django": "Django",
    "flask": "Flask",
    "fastapi": "FastAPI",
    "sqlalchemy": "SQLAlchemy",
    "celery": "Celery",
    "pytest": "pytest",
    "torch": "PyTorch",
    "tensorflow": "TensorFlow",
    "numpy": "NumPy",
    "pandas": "pandas",
    "react": "React",
    "vue": "Vue",
    "svelte": "Svelte",
    "@angular/core": "Angular",
    "next": "Next.js",
    "express": "Express",
    "vite": "Vite",
    "jest": "Jest",
    "vitest": "Vitest",
    "electron": "Electron",
    "rails": "Rails",
    "rspec": "RSpec",
    "laravel/framework": "Laravel",
    "symfony/framework-bundle": "Symfony",
    "tokio": "Tokio",
    "serde": "Serde",
    "axum": "Axum",
    "github.com/gin-gonic/gin": "Gin",
    "org.springframework.boot": "Spring Boot",
    "junit": "JUnit",
}
_REQUIREMENT = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)")


@dataclass(frozen=True, slots=True)
class Shape:
    """Of a commit: how many files, folders and tests there are, how deep its deepest file lies, and its languages by
    files."""

    files: int = 0
    folders: int = 0
    tests: int = 0
    deepest: int = 0
    languages: Counter[str] = field(default_factory=Counter)
    tools: tuple[str, ...] = ()

    @property
    def files_a_folder(self) -> float:
        return self.files / self.folders if self.folders else 0.0


@dataclass(frozen=True, slots=True)
class Growth:
    """`before` is None where the project began within the time that was looked at; `points`: when, and how many files,
    from the earliest on."""

    before: Shape | None
    now: Shape
    points: tuple[tuple[int, int], ...]
    frameworks: tuple[str, ...]


def growth(repository: Repository, facts: Sequence[Fact], deadline: Deadline) -> Growth | None:
    """None where trees are not here, or there is no time left for it."""
    line = _main_line(repository, facts)
    head, before = line[0], _before(repository, line[-1])
    try:
        if deadline.is_over():
            return None
        now = shape(repository, head)
        step = max(1, (len(line) - 1) / (POINTS - 1))
        chosen = [line[min(len(line) - 1, round(nth * step))] for nth in range(min(POINTS, len(line)))]
        points = [(commit.at, repository.count(commit)) for commit in chosen if not commit.is_cut]
        was = shape(repository, before) if before and not deadline.is_over() else None
        return Growth(was, now, tuple(reversed(points)), frameworks(repository, head))
    except KeyError:
        return None


def _main_line(repository: Repository, facts: Sequence[Fact]) -> list[Commit]:
    """The head and its first parents, as far as they were covered."""
    covered = {fact.id for fact in facts}
    line, here = [], facts[0].id
    while here in covered and (commit := repository.commit(here)) is not None:
        line.append(commit)
        here = commit.parents[0] if commit.parents else ""
    return line


def _before(repository: Repository, oldest: Commit) -> Commit | None:
    return repository.commit(oldest.parents[0]) if oldest.parents else None


def shape(repository: Repository, commit: Commit) -> Shape:
    """Raises KeyError for a tree that is not here."""
    files = tests = deepest = 0
    folders: set[str] = set()
    languages: Counter[str] = Counter()
    tools: set[str] = set()
    for path in repository.files(commit):
        above, _, name = path.rpartition("/")
        files, tests, deepest = files + 1, tests + is_test(path), max(deepest, path.count("/"))
        folders.add(above)
        languages[_language(name)] += 1
        tools.update(_tools(path, name))
    languages.pop("", None)
    return Shape(files, len(folders), tests, deepest, languages, tuple(sorted(tools)))


def _tools(path: str, name: str) -> Iterator[str]:
    if name in _TOOLS and path.count("/") <= _DEEPEST:
        yield _TOOLS[name]
    for folder, tool in _TOOL_FOLDERS.items():
        if path.startswith(folder):
            yield tool


def _language(name: str) -> str:
    """By a file's whole name for those without an ending, else by its ending."""
    ending = PurePosixPath(name).suffix
    return _language_of(f"a{ending}" if ending and not name.startswith(".") else name)


@cache
def _language_of(name: str) -> str:
    from pygments.lexers import find_lexer_class_for_filename  # not needed by who analyses nothing

    found = find_lexer_class_for_filename(name)
    if found is None or found.name in _NO_LANGUAGE:
        return ""
    return _CALLED.get(found.name, str(found.name))


# --- manifests


def frameworks(repository: Repository, commit: Commit) -> tuple[str, ...]:
    """What its manifests name, of those that are known here. Raises KeyError for a tree that is not here."""
    named: set[str] = set()
    for path in repository.files(commit):
        read = _READERS.get(path.rpartition("/")[2])
        if read is not None and path.count("/") <= _DEEPEST:
            named.update(_named(repository, commit, path, read))
    return tuple(sorted({_FRAMEWORKS[name] for name in named if name in _FRAMEWORKS}))


def _named(repository: Repository, commit: Commit, path: str, read: Callable[[str], Iterator[str]]) -> set[str]:
    try:
        data = repository.content(commit, path)
        return {name.lower() for name in read(data.decode("utf-8", "replace"))} if len(data) <= _LARGEST else set()
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError):  # not here, or not what it is called
        return set()


def _of_requirements(text: str) -> Iterator[str]:
    for line in text.splitlines():
        if found := _REQUIREMENT.match(line.partition("#")[0]):
            yield found[1]


def _of_pyproject(text: str) -> Iterator[str]:
    said = tomllib.loads(text)
    project = said.get("project", {})
    groups = [project.get("dependencies", []), *project.get("optional-dependencies", {}).values()]
    for line in (line for group in groups for line in group):
        yield from _of_requirements(str(line))
    yield from said.get("tool", {}).get("poetry", {}).get("dependencies", {})


def _of_package(text: str) -> Iterator[str]:
    said = json.loads(text)
    for kind in ("dependencies", "devDependencies"):
        yield from said.get(kind) or {}


def _of_cargo(text: str) -> Iterator[str]:
    said = tomllib.loads(text)
    for kind in ("dependencies", "dev-dependencies"):
        yield from said.get(kind, {})


def _of_composer(text: str) -> Iterator[str]:
    said = json.loads(text)
    for kind in ("require", "require-dev"):
        yield from said.get(kind) or {}


def _words(text: str) -> Iterator[str]:
    """Of manifests that are programs: what stands in quotes, between blanks or in elements."""
    for found in re.finditer(r"""[\s"'(>]([@\w][\w./@-]*)(?=[\s"'):<])""", text):
        yield found[1]


_READERS: dict[str, Callable[[str], Iterator[str]]] = {
    "requirements.txt": _of_requirements,
    "requirements-dev.txt": _of_requirements,
    "pyproject.toml": _of_pyproject,
    "package.json": _of_package,
    "Cargo.toml": _of_cargo,
    "composer.json": _of_composer,
    "go.mod": _words,
    "Gemfile": _words,
    "pom.xml": _words,
    "build.gradle": _words,
    "build.gradle.kts": _words,
}
