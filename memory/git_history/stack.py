"""Describe the tree of a commit: the numbers of files and folders, the languages, and the tools. The names of the files
show which tools the project uses."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from memory.git_history.messages import table
from memory.git_history.repository import Commit, Repository

_TEST = re.compile(r"(?:^|/)(?:tests?|specs?|__tests__)/|(?:^|/)test_[^/]*$|[._-](?:test|spec)s?\.[^/.]+$", re.I)
CHANGELOG = re.compile(r"(?:^|/)(?:changes|changelog|history|news|release[-_]?notes)(?:\.\w+)?$", re.I)
_BESIDE_CODE = re.compile(r"\.|(?:docs?|examples?|benchmarks?)/", re.I)  # the start of a path
_DEEPEST = 3  # a file that shows a tool has at most this many parent folders


_CODE = table("""
    py pyi pyx=Python; js mjs cjs jsx=JavaScript; ts tsx mts=TypeScript; go=Go; rs=Rust; java=Java; kt kts=Kotlin;
    c h=C; cc cpp cxx hpp hh hxx=C++; cs=C#; fs=F#; vb=Visual Basic; rb erb=Ruby; php=PHP; swift=Swift;
    m mm=Objective-C; scala=Scala; clj cljs=Clojure; ex exs=Elixir; erl hrl=Erlang; hs=Haskell; ml mli=OCaml; lua=Lua;
    pl pm=Perl; r=R; jl=Julia; dart=Dart; zig=Zig; nim=Nim; asm s=Assembly; sh bash zsh fish=Shell; ps1=PowerShell;
    bat cmd=Batch; sql=SQL; graphql gql=GraphQL; proto=Protocol Buffers; html htm=HTML; css=CSS; vue=Vue;
    scss sass less=CSS preprocessors; svelte=Svelte; sol=Solidity; el=Emacs Lisp; vim=Vim script; tf hcl=HCL; nix=Nix
""")
_LANGUAGES = _CODE | table("""
    svg=SVG; xml=XML; json jsonc=JSON; yaml yml=YAML; toml=TOML; ini cfg=INI; md markdown mdx=Markdown; csv=CSV;
    rst=reStructuredText; adoc=AsciiDoc; tex=LaTeX; ipynb=Jupyter; cmake=CMake; gradle groovy=Groovy; po pot=gettext
""")
_TOOLS = table("""
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
_README = re.compile(r"readme(?:\.(?:md|markdown|rst|txt|adoc))?", re.I)
MANIFESTS = ("pyproject.toml", "package.json", "Cargo.toml", "composer.json")  # they can have a description
_DESCRIBED = re.compile(r'^\s*"?description"?\s*[=:]\s*"([^"\\\n]{10,300})"', re.M)
_NOT_TEXT = re.compile(r"<!--.*?-->|```.*?```|^#[^\n]*|^ *</?(?:p|div|h[1-6])\b[^<>]*>", re.DOTALL | re.M)
_NOT_PROSE = re.compile(r"[#=!<>|*\[`.:+~^-]")  # headings, badges, HTML, tables, lists, directives
_UNDERLINED = re.compile(r"\A.*\n[=~^*#-]{3,}[ ]*(?:\n|\Z)")  # a heading that is underlined
_LINK = re.compile(r"!?\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])?|`([^`<]+?)(?: <[^>]*>)?`_{0,2}")
_NO_SUBJECT = r"(?!(?i:this|it|there|these|here|below|what|if|we|you)\b)"
_DEFINES = re.compile(rf"(?:{_NO_SUBJECT}[\w.+()/'-]+ ){{1,5}}(?:is|are) (?:an?|the) ")
_NEWS = re.compile(r"announc|excited|releas|\bv?\d+\.\d+\.\d+|deprecated|has moved|now available", re.I)
_LONGEST = 400  # characters of a description


class Shape(NamedTuple):
    """Figures about the tree of a commit. `folders` counts every folder, including folders that contain only other
    folders."""

    files: int
    folders: int
    tests: int
    languages: Counter[str]
    tools: frozenset[str]
    readme: str  # the path of the README in the root


def shape(repository: Repository, commit: Commit) -> Shape:
    """Return the figures about a commit's tree. Raises KeyError if a tree is not in this clone."""
    tree = repository.tree(commit)
    files = [path for path, is_folder in tree.items() if not is_folder]
    tools = {_TOOLS[path.rpartition("/")[2]] for path in files if is_manifest(path)}
    return Shape(
        files=len(files),
        folders=len(tree) - len(files),
        tests=sum(map(is_test, files)),
        languages=Counter(_LANGUAGES[name] for name in map(_extension, files) if name in _LANGUAGES),
        tools=frozenset(tools.union(tool for path, tool in _TOOL_FOLDERS.items() if path in tree)),
        readme=next((path for path in sorted(files) if _README.fullmatch(path)), ""),
    )


def is_test(path: str) -> bool:
    return bool(_TEST.search(path))


def is_code(path: str) -> bool:
    """Return whether the file is code that runs in the product. Return False for tests, examples, documentation and
    files in hidden folders."""
    return _extension(path) in _CODE and not is_test(path) and not _BESIDE_CODE.match(path)


def is_manifest(path: str, tool: str = "") -> bool:
    """Return whether the name of a file shows that the project uses a tool. If `tool` is given, only this tool counts.
    A file that is more than three folders deep does not count."""
    found = _TOOLS.get(path.rpartition("/")[2])
    return found is not None and tool in ("", found) and path.count("/") <= _DEEPEST


def _extension(path: str) -> str:
    before, _, extension = path.rpartition("/")[2].rpartition(".")
    return extension.lower() if before else ""


def description(readme: str, manifests: Iterable[str]) -> str:
    """Return a text that says what the project is. The first choice is a paragraph of the README that defines the
    project. The second choice is the description in a manifest. The third choice is the first paragraph of the README.
    Paragraphs with news are skipped."""
    prose = [text for text in _prose(readme) if text and not _NEWS.search(text)][:5]
    defining = [text for text in prose if _DEFINES.match(text)]
    described = [found[1] for manifest in manifests if (found := _DESCRIBED.search(manifest))]
    return next(iter(defining + described + prose), "")


def _prose(readme: str) -> Iterator[str]:
    """Yield the first two sentences of each text paragraph. Headings, badges, tables and lists are skipped."""
    for paragraph in re.split(r"\n\s*\n", _NOT_TEXT.sub("\n", readme[:10_000].replace("\r", ""))):
        prose = _UNDERLINED.sub("", paragraph.strip("\n"))
        plain = " ".join(_LINK.sub(r"\1\2", prose).replace("**", "").split())
        if len(plain) >= 30 and not _NOT_PROSE.match(prose.removeprefix("**")) and not prose.startswith((" ", "\t")):
            yield _sentences(plain)


def _sentences(text: str) -> str:
    """Return the first two sentences of a text. Return "" if the first sentence is too long."""
    ends = [found.end() for found in re.finditer(r"[.!?](?=\s|\Z)", text) if found.end() <= _LONGEST]
    return text[: ends[min(2, len(ends)) - 1]] if ends else text.rstrip(":") if len(text) <= _LONGEST else ""
