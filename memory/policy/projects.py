"""Identifies the project of a folder, and decides which memories are visible from a project."""

import hashlib
import re
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any
from urllib.parse import unquote, urlsplit

from memory.errors import Invalid
from memory.policy import settings_document
from memory.policy.categories import DEFAULT_PROJECT, PROJECT, SCOPES
from memory.policy.validation import checked_project as checked_project

VARIABLE = "MEMORY_PROJECT"
_SCP = re.compile(r"(?:[^@/\s]+@)?(?P<host>[^:/@\s]+):(?P<path>[^\s]+)\Z")  # git@host:acme/site.git
_UNFIT = re.compile(r"[^A-Za-z0-9._/@-]+")


def identify(rules: Mapping[str, Any], override: str, remote: str, directory: str) -> str:
    """Return the id of the current project. These can give the id, in this order: the environment variable
    (`override`), the setting, the git remote, the folder. The first id is used. Raises Invalid if the id in the
    environment variable or in the setting is invalid."""
    path = settings_document.PROJECT_ID
    explicit = {VARIABLE: override, path: settings_document.value(rules, path)}
    for field, name in explicit.items():
        if name.strip():
            return checked_project(name.strip(), field)
    if not settings_document.is_on(rules, "project_support", "auto_detect_projects"):
        return DEFAULT_PROJECT
    method = settings_document.value(rules, "memory_rules.project_support.project_identification_method")
    found = [of_remote(remote)] if method != "directory_name" else []
    found += [of_directory(directory)] if method != "git_remote" else []
    return next(filter(None, found), DEFAULT_PROJECT)


def of_remote(url: str) -> str:
    """Return the host and path of a git remote, without credentials, port and `.git`. Returns "" if the remote is a
    local path or not a URL."""
    host, path = _split(url.strip())
    path = "/".join(part for part in unquote(path).split("/") if part.strip(".")).removesuffix(".git")
    return _fit(f"{host.lower()}/{path}") if host and path else ""


def _split(url: str) -> tuple[str, str]:
    if "://" in url:
        try:
            parts = urlsplit(url)
            return (parts.hostname or "", parts.path) if parts.scheme != "file" else ("", "")
        except ValueError:
            return "", ""
    found = _SCP.match(url)
    is_drive = found is not None and len(found["host"]) == 1  # C:\work
    return (found["host"], found["path"]) if found and not is_drive else ("", "")


def of_directory(path: str) -> str:
    return _fit(PurePath(path.replace("\\", "/")).name)


def _fit(text: str) -> str:
    """Turn a text into a valid project id. Returns "" if this is not possible."""
    plain = re.sub(r"\.{2,}", ".", _UNFIT.sub("-", text)).strip("-._/@")[:100].rstrip("-._/@")
    if not plain and any(letter.isalnum() for letter in text):  # the text is in another script
        plain = f"project-{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()[:8]}"
    try:
        return checked_project(plain)
    except Invalid:
        return ""


def seen_from(rules: Mapping[str, Any], project: str) -> dict[str, frozenset[str]] | None:
    """Map each category to the projects whose memories are visible from this project. For a category that is missing in
    the result, the memories of all projects are visible. If the result is None, this is true for all categories."""
    if not settings_document.is_on(rules, "project_support", "enabled"):
        return None
    own = frozenset({project} if project not in ("", DEFAULT_PROJECT) else {"", DEFAULT_PROJECT})
    visible = {}
    for name, scope in SCOPES.items():
        if scope == PROJECT:
            visible[name] = own
        elif not settings_document.is_on(rules, "categories", name, "share_across_projects"):
            visible[name] = own | {""}  # and memories without a project
    return visible
