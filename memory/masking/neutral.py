"""Captured content without the licences and brands of the frameworks and tools it came through (seed 004, "Framework
Neutrality").

Left out are comments and lines that say nothing else: a tool's signature, a commit's trailer, a licence's header. What
somebody says of a licence, a tool or a person stays.
"""

from __future__ import annotations

import re
from itertools import groupby, pairwise

_COMMENT = re.compile(r"<!--\s{0,20}(?=licen[cs]e|metadata|copyright|spdx-license-identifier)", re.IGNORECASE)
_LICENCE = re.compile(
    r"licen[cs]ed under|released under|all rights reserved|copyright (?:\(c\)|©|\d{4})|spdx-license-identifier|"
    r"licen[cs]e:[ \t]{0,4}(?:mit|bsd|apache|a?gpl|lgpl|mpl|isc)\b|metadata: this document contains",
    re.IGNORECASE,
)
_TOOLS = (
    r"agentic rules|aider|amp|chatgpt|claude(?: code| opus| sonnet| haiku)?|cline|codeium|codex(?: cli)?|copilot|"
    r"cursor|devin|gemini(?: cli| code assist)?|github actions?|github copilot|"
    r"gpt-?\d[\w.]{0,10}|jules|langchain|llamaindex|"
    r"openai(?: codex)?|opencode|openhands|replit agent|roo code|tabnine|windsurf"
)
# Names that people and other things have, too.
_SHARED = frozenset(("aider", "amp", "claude", "cline", "codex", "cursor", "devin", "gemini", "jules"))
_MAKERS = "anthropic|openai|cursor|cognition|devin|aider|windsurf|codeium|all-hands|openhands"
_LEAD = r"[ \t>#*/_;|-]{0,20}"  # quotes, comments, bullets, emphasis
_MARK = r"(?P<mark>[^\w\s<>\[\](){}\"'`>#*/_;|.,:!?-]{1,4}[ \t]{0,3})?"  # a little picture
_END = r"[.!*_ \t]{0,6}"
_COPYRIGHT = re.compile(
    rf"{_LEAD}(?:copyright\b[ \t]{{0,3}})?(?:\(c\)|©|copyright\b)[ \t]{{0,3}}[^?]{{0,300}}?"
    r"\b(?:licen[cs]ed under|released under|under the [^?]{0,60}licen[cs]e|all rights reserved)\b[^?]{0,300}",
    re.IGNORECASE,
)
# The same in two lines, and nothing else in them.
_OWNED = re.compile(
    rf"{_LEAD}(?:copyright[ \t]{{0,3}}(?:\(c\)|©|(?=\d{{4}}))|\(c\)|©)[ \t]{{0,3}}(?:\d{{4}}|\w)[^?]{{0,120}}",
    re.IGNORECASE,
)
_TERMS_ALONE = re.compile(
    rf"{_LEAD}(?:(?:licen[cs]ed|released|distributed) under [^?.,;]{{0,60}}licen[cs]e(?:,? (?:version )?[\d.]{{1,8}})?|"
    rf"all rights reserved){_END}",
    re.IGNORECASE,
)
_SPDX = re.compile(rf"{_LEAD}SPDX-(?:License-Identifier|FileCopyrightText):[^?]{{0,160}}", re.IGNORECASE)
_GENERATED = re.compile(
    rf"{_LEAD}{_MARK}{_LEAD}(?P<how>(?:generated|created|written|made|produced|powered)[ ](?:with|by|using))[ ]"
    rf"(?:the[ ])?(?:(?P<link>\[[^\]]{{1,80}}\]\(https?://[^)\s]{{1,160}}\))|"
    rf"(?P<tool>{_TOOLS})(?:[ ]v?\d[\w.]{{0,10}})?(?P<at>[ ]?[(<]?https?://[^\s)>]{{1,120}}[)>]?)?){_END}",
    re.IGNORECASE,
)
_TRAILER = re.compile(
    rf"{_LEAD}(?:co-authored-by|assisted-by|generated-by):[ \t]{{0,3}}"
    rf"(?:(?:{_TOOLS}){_END}|[^<\n]{{0,100}}\[bot\].{{0,100}}|[^<\n]{{0,100}}<(?:[^>\n]{{0,60}}\b)?"
    rf"(?:no-?reply@[^>\n]{{1,80}}|[^>@\n]{{1,60}}@(?:[\w-]{{1,30}}\.)?(?:{_MAKERS})\.\w{{2,5}})>[ \t]{{0,3}})",
    re.IGNORECASE,
)

# The header of a file: lines of comments, one after another, that tell whose it is and by which licence.
_IN_COMMENT = re.compile(r"[ \t]*(?:#(?![#!])|//|--|;|\*|/\*)")
_OWNER = re.compile(r"copyright|\(c\)|©|spdx-", re.IGNORECASE)
_TERMS = re.compile(
    r"licen[cs]ed under|governed by a|permission is hereby granted|redistribut|free software|all rights reserved|"
    r"spdx-license-identifier|in compliance with the licen[cs]e",
    re.IGNORECASE,
)
_HEADER = range(3, 60)  # lines of one


def neutral(text: str) -> str:
    """The text without them, "" where there is nothing else; where there are none, as it is."""
    kept = _without_comments(text)
    lines = kept.splitlines(keepends=True)
    headers = _headers(lines) | _notices(lines)
    left = [line for n, line in enumerate(lines) if n not in headers and not _is_branding(line.rstrip("\r\n"))]
    if kept == text and len(left) == len(lines):
        return text
    return re.sub(r"\n{3,}", "\n\n", "".join(left)).rstrip()


def neutral_whole(text: str) -> str:
    """The same of all that somebody said at once: where it is nothing else, that is what was said, and stays."""
    return neutral(text) or text


def _without_comments(text: str) -> str:
    parts, kept, at = [], 0, 0
    while (found := _COMMENT.search(text, at)) is not None:
        end = text.find("-->", found.end())
        if end < 0:
            break  # it is none
        at = end + len("-->")
        if _LICENCE.search(text, found.end(), end):
            parts.append(text[kept : found.start()])
            kept = at
    return "".join([*parts, text[kept:]])


def _headers(lines: list[str]) -> set[int]:
    """Which lines are of a licence's header."""
    found: set[int] = set()
    for is_comment, run in groupby(enumerate(lines), lambda each: _IN_COMMENT.match(each[1]) is not None):
        numbers = [n for n, _ in run] if is_comment else []
        said = "".join(lines[n] for n in numbers) if len(numbers) in _HEADER else ""
        is_list = said.lstrip().startswith("*")
        if _OWNER.search(said) and _TERMS.search(said) and "?" not in said and not is_list:
            found.update(numbers)
    return found


def _notices(lines: list[str]) -> set[int]:
    """A line that says whose it is, and the next one, that says by which licence."""
    said = [n for n, line in enumerate(lines) if line.strip()]
    return {
        n
        for pair in pairwise(said)
        if _OWNED.fullmatch(lines[pair[0]].strip()) and _TERMS_ALONE.fullmatch(lines[pair[1]].strip())
        for n in pair
    }


def _is_branding(line: str) -> bool:
    if len(line) > 500:
        return False
    if any(pattern.fullmatch(line) for pattern in (_COPYRIGHT, _SPDX, _TRAILER)):
        return True
    made = _GENERATED.fullmatch(line)
    if made is None:
        return False
    is_signed = bool(made["mark"] or made["at"] or made["how"].lower().startswith("generated"))
    if made["link"]:
        return is_signed or made["how"].lower().endswith(("with", "using"))
    return is_signed or made["tool"].lower() not in _SHARED
