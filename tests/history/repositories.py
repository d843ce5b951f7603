"""Repositories of any length, made by `git fast-import` and always the same; commits; and analyses."""

import os
import random
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from memory.git_history.analysis import Analysis, Limits, Parts, analyze
from memory.git_history.repository import Repository

DAY = 86_400
NOW = int(time.time())
WIDE = Limits(36_500, 1_000_000, 600)
ALL = Parts(branches=True, authors=True)
NOBODY = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull, "LC_ALL": "C"}
PEOPLE = (("Ada Quay", "ada@quay.test"), ("Noor Tide", "noor@quay.test"), ("Sol Mast", "sol@quay.test"))
_SUBJECTS = (
    *("feat(ferry): show the next departure", "fix: wait for the tide table", "refactor: one road for bookings"),
    *("docs: say how berths are numbered", "test: berths by the hundred", "Fix crash when the harbour is closed (#12)"),
    *("Add a page for winds", "Bump ropes from 1.2 to 1.3", "chore: tidy", "Something else"),
)


def git(folder: Path, *arguments: str, data: bytes | None = None) -> str:
    """The output of git. Paths are not quoted; bytes that are not UTF-8 become surrogates."""
    command = ["git", "-c", "core.quotePath=false", "-C", str(folder), *arguments]
    ran = subprocess.run(command, input=data, capture_output=True, check=True, env=os.environ | NOBODY)
    return ran.stdout.decode("utf-8", "surrogateescape")


def new_repository(folder: Path, *options: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "--quiet", "--initial-branch=main", *options)
    return folder


def commit(folder: Path, message: str, files: dict[str, str], *, at: int = NOW - 60) -> str:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    git(folder, "add", "--all")
    os.environ |= {"GIT_COMMITTER_DATE": f"@{at} +0000", "GIT_AUTHOR_DATE": f"@{at} +0000"}
    try:
        git(folder, "-c", "user.name=Ada Quay", "-c", "user.email=ada@quay.test", "commit", "--quiet", "-m", message)
    finally:
        del os.environ["GIT_COMMITTER_DATE"], os.environ["GIT_AUTHOR_DATE"]
    return git(folder, "rev-parse", "HEAD").strip()


def analysis(folder: Path, parts: Parts = ALL, limits: Limits = WIDE) -> Analysis:
    with Repository(folder) as repository:
        found = analyze(repository, limits, parts, now=NOW)
    assert found is not None
    return found


def made(folder: Path, commits: int, *, ending: int, every: int = 3_600, seed: int = 1) -> Path:
    """A bare repository with this many commits, one every `every` seconds until `ending`, with branches and tags.
    Some files change together. Some branches are merged later, others never."""
    new_repository(folder, "--bare")
    stream = "".join(_stream(commits, ending, every, random.Random(seed)))
    git(folder, "fast-import", "--quiet", data=stream.encode())
    return folder


def _stream(commits: int, ending: int, every: int, chance: random.Random) -> Iterator[str]:
    open_branches: dict[str, int] = {}
    for nth in range(1, commits + 1):
        at = ending - (commits - nth) * every
        merged = next((name for name, since in open_branches.items() if nth - since > len(name) * 3), "")
        branch = "main"
        if merged and chance.random() < 0.3:
            del open_branches[merged]
            yield _commit("main", nth, at, chance, f"Merge branch '{merged}'", merge=merged)
            continue
        if open_branches and chance.random() < 0.4:
            branch = chance.choice(sorted(open_branches))
        elif nth % 40 == 10:
            branch = f"feature-{nth}" if nth % 80 == 10 else f"fix/{nth}"
            open_branches[branch] = nth
            yield f"reset refs/heads/{branch}\nfrom refs/heads/main\n\n"
        yield _commit(branch, nth, at, chance, _subject(nth, chance))
        if nth % 100 == 0:
            name = f"v{nth // 1000}.{nth // 100 % 10}.0"
            yield f"tag {name}\nfrom refs/heads/main\ntagger A <a@b.test> {at} +0000\ndata 1\nr\n"


def _subject(nth: int, chance: random.Random) -> str:
    subject = chance.choice(_SUBJECTS)
    return f"{subject}\n\nBecause berth {nth} asked for it.\n" if nth % 7 == 0 else subject


def _commit(branch: str, nth: int, at: int, chance: random.Random, message: str, merge: str = "") -> str:
    name, email = chance.choice(PEOPLE)
    lines = [
        f"commit refs/heads/{branch}",
        f"author {name} <{email}> {at} +0200",
        f"committer {name} <{email}> {at} +0200",
        f"data {len(message.encode())}",
        message,
    ]
    lines += [f"merge refs/heads/{merge}"] if merge else list(_edits(nth, chance))
    return "\n".join(lines) + "\n\n"


def _edits(nth: int, chance: random.Random) -> Iterator[str]:
    for _ in range(chance.randint(1, 4)):
        hot = chance.random() < 0.3
        path = f"src/core/m{chance.randint(1, 5)}.py" if hot else f"src/part{chance.randint(1, 40)}/m{nth % 400}.py"
        yield f"M 100644 inline {path}\ndata {len(str(nth))}\n{nth}"
        if hot:
            yield f"M 100644 inline tests/{path.rpartition('/')[2]}\ndata {len(str(nth))}\n{nth}"
    if nth % 50 == 0:
        yield f"M 100644 inline docs/page{nth}.md\ndata 1\nx"
    if nth % 150 == 0:
        yield f"D docs/page{nth - 50}.md"
