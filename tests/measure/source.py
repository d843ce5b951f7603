"""Read the product's Python files and count them: code lines, functions, import cycles."""

import ast
import io
import tokenize
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("audit", "config", "memory", "refinement")

_NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
_NO_CODE |= {tokenize.ENCODING, tokenize.ENDMARKER}
_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Function:
    place: str
    length: int


@dataclass(frozen=True)
class Source:
    """One Python file. `path` is relative to the root; `code` holds the numbers of the lines with code."""

    path: Path
    tree: ast.Module
    code: frozenset[int]
    physical: int

    @property
    def module(self) -> str:
        parts = self.path.with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @property
    def functions(self) -> Iterator[Function]:
        """Every function and method. Its length is its code lines, with those of the functions inside it."""
        for node in ast.walk(self.tree):
            if isinstance(node, _Function):
                lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
                yield Function(f"{self.path}:{node.lineno} {node.name}", len(self.code.intersection(lines)))


def read(root: Path) -> list[Source]:
    """Every Python file of the product, without migrations."""
    found = []
    for package in PACKAGES:
        for file in sorted((root / package).rglob("*.py")):
            if "migrations" not in file.parts:
                text = file.read_text("utf-8")
                tree = ast.parse(text)
                found.append(Source(file.relative_to(root), tree, code_lines(text, tree), physical_lines(text)))
    return found


def physical_lines(text: str) -> int:
    return len(io.StringIO(text).readlines())


def code_lines(text: str, tree: ast.Module) -> frozenset[int]:
    """The numbers of the lines with code: no blank line, no comment, no docstring."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return frozenset(lines.difference(_docstring_lines(tree)))


def _docstring_lines(tree: ast.Module) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | _Function) and ast.get_docstring(node, clean=False) is not None:
            yield from range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)


def import_cycles(sources: list[Source]) -> list[list[Path]]:
    """Groups of files that import each other, directly or through others. Imports inside functions count."""
    paths = {source.module: source.path for source in sources}
    graph = {source.module: set(_imports(source.tree, paths)) for source in sources}
    reached = {module: _reached(module, graph) for module in graph}
    groups = {
        frozenset(other for other in found if module in reached[other])
        for module, found in reached.items()
        if module in found
    }
    return sorted(sorted(paths[module] for module in group) for group in groups)


def _imports(node: ast.AST, modules: Mapping[str, Path]) -> Iterator[str]:
    """The project's modules that this node imports. `if TYPE_CHECKING:` does not count."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name in modules)
    elif isinstance(node, ast.ImportFrom):
        for alias in node.names:
            names = (f"{node.module}.{alias.name}", str(node.module))
            yield from [name for name in names if name in modules][:1]
    else:
        is_for_types = isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        for child in node.orelse if is_for_types else ast.iter_child_nodes(node):
            yield from _imports(child, modules)


def _reached(start: str, graph: Mapping[str, set[str]]) -> set[str]:
    """Every module that `start` imports, directly or through others."""
    found: set[str] = set()
    waiting = [start]
    while waiting:
        new = graph[waiting.pop()] - found
        found |= new
        waiting.extend(new)
    return found
