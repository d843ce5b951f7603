"""What a commit's tree consists of: its size and structure, its languages, and the tools that its file names show."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from memory.git_history.repository import Commit, Repository

_TEST = re.compile(
    r"(?:^|/)(?:tests?|specs?|__tests__)/|(?:^|/)test_[^/]*$|[._-](?:test|spec)s?\.[^/.]+$", re.IGNORECASE
)
_DEEPEST = 3  # folders above a file that names a tool


def _table(text: str) -> dict[str, str]:
    """Names before each equals sign, separated by spaces, with the word or words after it up to the semicolon."""
    pairs = (entry.strip().split("=") for entry in text.split(";") if entry.strip())
    return {name: value for names, value in pairs for name in names.split()}


_LANGUAGES = _table("""
    py pyi pyx=Python; js mjs cjs jsx=JavaScript; ts tsx mts=TypeScript; go=Go; rs=Rust; java=Java; kt kts=Kotlin;
    c h=C; cc cpp cxx hpp hh hxx=C++; cs=C#; fs=F#; vb=Visual Basic; rb erb=Ruby; php=PHP; swift=Swift;
    m mm=Objective-C; scala=Scala; clj cljs=Clojure; ex exs=Elixir; erl hrl=Erlang; hs=Haskell; ml mli=OCaml; lua=Lua;
    pl pm=Perl; r=R; jl=Julia; dart=Dart; zig=Zig; nim=Nim; asm s=Assembly; sh bash zsh fish=Shell; ps1=PowerShell;
    bat cmd=Batch; sql=SQL; graphql gql=GraphQL; proto=Protocol Buffers; html htm=HTML; css=CSS;
    scss sass less=CSS preprocessors; vue=Vue; svelte=Svelte; svg=SVG; xml=XML; json jsonc=JSON; yaml yml=YAML;
    toml=TOML; ini cfg=INI; md markdown mdx=Markdown; rst=reStructuredText; adoc=AsciiDoc; tex=LaTeX; ipynb=Jupyter;
    tf hcl=HCL; nix=Nix; cmake=CMake; gradle groovy=Groovy; po pot=gettext; sol=Solidity; el=Emacs Lisp;
    vim=Vim script; csv=CSV
""")
_TOOLS = _table("""
    pyproject.toml setup.py setup.cfg requirements.txt Pipfile=Python; manage.py=Django; uv.lock=uv;
    poetry.lock=Poetry; tox.ini=tox; package.json=Node.js; pnpm-lock.yaml=pnpm; yarn.lock=Yarn;
    bun.lock bun.lockb=Bun; deno.json=Deno; tsconfig.json=TypeScript; angular.json=Angular;
    next.config.js next.config.mjs next.config.ts=Next.js; nuxt.config.ts=Nuxt; svelte.config.js=Svelte;
    vite.config.js vite.config.ts=Vite; webpack.config.js=webpack; jest.config.js jest.config.ts=Jest;
    go.mod=Go modules; Cargo.toml=Cargo; pom.xml=Maven; build.gradle build.gradle.kts=Gradle; build.sbt=sbt;
    Gemfile=Bundler; config.ru=Rack; composer.json=Composer; artisan=Laravel; mix.exs=Mix; pubspec.yaml=Dart;
    Package.swift=Swift packages; stack.yaml=Stack; deps.edn=Clojure; CMakeLists.txt=CMake; meson.build=Meson;
    configure.ac=Autotools; Makefile GNUmakefile=Make; BUILD.bazel WORKSPACE=Bazel; Dockerfile Containerfile=Docker;
    docker-compose.yml docker-compose.yaml compose.yml compose.yaml=Docker Compose; Chart.yaml=Helm;
    .pre-commit-config.yaml=pre-commit; Jenkinsfile=Jenkins; .gitlab-ci.yml=GitLab CI; flake.nix=Nix;
    .travis.yml=Travis CI; mkdocs.yml=MkDocs
""")
_TOOL_FOLDERS = {".github/workflows": "GitHub Actions", ".circleci": "CircleCI"}
_README = re.compile(r"readme(?:\.(?:md|markdown|rst|txt|adoc))?", re.IGNORECASE)
_NOT_PROSE = re.compile(r"[#=!<>|*\[`.:+~^-]")  # headings, badges, HTML, tables, lists, directives
_UNDERLINED = re.compile(r"\A.*\n[=~^*#-]{3,}[ ]*(?:\n|\Z)")  # a heading above its line
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)|`([^`<]+?)(?: <[^>]*>)?`_{0,2}")
_LONGEST = 400  # characters of a description


@dataclass(frozen=True, slots=True)
class Shape:
    """The tree of a commit. `folders` counts every folder, also those that contain only folders."""

    files: int = 0
    folders: int = 0
    tests: int = 0
    deepest: int = 0
    languages: Counter[str] = field(default_factory=Counter)
    tools: frozenset[str] = frozenset()
    readme: str = ""  # the path of the README in the root


def shape(repository: Repository, commit: Commit) -> Shape:
    """Raises KeyError if a tree is not in this clone."""
    folders = 0
    files: list[str] = []
    tools: set[str] = set()
    for path, is_folder in repository.tree(commit):
        folders += is_folder
        tools.update([_TOOL_FOLDERS[path]] if path in _TOOL_FOLDERS else ())
        if not is_folder:
            files.append(path)
    tools |= {_TOOLS[path.rpartition("/")[2]] for path in files if is_manifest(path)}
    return Shape(
        files=len(files),
        folders=folders,
        tests=sum(map(is_test, files)),
        deepest=max((path.count("/") for path in files), default=0),
        languages=Counter(filter(None, (language(path.rpartition("/")[2]) for path in files))),
        tools=frozenset(tools),
        readme=next((path for path in sorted(files) if _README.fullmatch(path)), ""),
    )


def is_test(path: str) -> bool:
    return bool(_TEST.search(path))


def is_manifest(path: str) -> bool:
    """Whether the name of a file shows a tool, and the file is not deep in the tree."""
    return path.rpartition("/")[2] in _TOOLS and path.count("/") <= _DEEPEST


def language(name: str) -> str:
    """By the extension of a file; "" if it is unknown."""
    before, _, extension = name.rpartition(".")
    return _LANGUAGES.get(extension.lower(), "") if before else ""


def description(readme: str) -> str:
    """The first sentences of a README: of its first paragraph of prose."""
    text = re.sub(r"<!--.*?-->|```.*?```", "", readme[:10_000].replace("\r", ""), flags=re.DOTALL)
    for paragraph in re.split(r"\n\s*\n", re.sub(r"^#.*$", "\n", text, flags=re.MULTILINE)):
        prose = _UNDERLINED.sub("", paragraph.strip("\n"))
        plain = " ".join(_LINK.sub(r"\1\2", prose).replace("**", "").split())
        if len(plain) >= 30 and not _NOT_PROSE.match(prose.removeprefix("**")) and not prose.startswith((" ", "\t")):
            return _sentences(plain)
    return ""


def _sentences(text: str) -> str:
    """The whole sentences at the start of a text."""
    ends = [found.end() for found in re.finditer(r"[.!?](?=\s|\Z)", text) if found.end() <= _LONGEST]
    return text[: ends[min(2, len(ends)) - 1]] if ends else text if len(text) <= _LONGEST else ""
