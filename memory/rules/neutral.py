"""Captured content without the licences and brands of the frameworks and tools it came through (seed 004, "Framework
Neutrality").

Left out are whole comments and whole lines that say nothing else. What somebody says about a licence stays.
"""

from __future__ import annotations

import re

_COMMENT = re.compile(
    r"<!--\s{0,20}(?:licen[cs]e|metadata|copyright|spdx-license-identifier)\b",
    re.IGNORECASE,
)
_TOOLS = (
    r"agentic rules|aider|chatgpt|claude|cline|codex|copilot|cursor|devin|gemini|github actions?|gpt-?\d|jules|"
    r"langchain|llamaindex|openai|openhands|windsurf|github copilot"
)
_LEAD = r"[ \t>#*/_;|-]{0,20}"  # quotes, comments, bullets, emphasis
_MARK = r"(?:[^\w\s<>\[\](){}\"'`]{1,4}[ \t]{0,3})?"  # a little picture
_COPYRIGHT = re.compile(
    rf"{_LEAD}(?:copyright\b[ \t]{{0,3}})?(?:\(c\)|©|copyright\b)[ \t]{{0,3}}.{{0,300}}?"
    r"\b(?:licen[cs]ed under|released under|under the .{0,60}licen[cs]e|all rights reserved)\b.{0,300}",
    re.IGNORECASE,
)
_SPDX = re.compile(rf"{_LEAD}SPDX-License-Identifier:.{{0,100}}", re.IGNORECASE)
_GENERATED = re.compile(
    rf"{_LEAD}{_MARK}{_LEAD}(?:generated|created|written|made|produced|powered)[ ]"
    r"(?:with|by|using)[ ](?P<by>.{1,160})",
    re.IGNORECASE,
)
_BY_A_TOOL = re.compile(
    rf"(?:\[[^\]]{{1,80}}\]\(https?://[^)\s]{{1,120}}\)|(?:the[ ])?(?:{_TOOLS})(?:[ ][\w.-]{{1,30}}){{0,3}}"
    r"(?:[ ]?\(?https?://[^\s)]{1,120}\)?)?)[.!*_ \t]{0,6}\Z",
    re.IGNORECASE,
)
_TRAILER = re.compile(
    rf"{_LEAD}co-authored-by:[ \t]{{0,3}}(?:.{{0,80}}\b(?:{_TOOLS})\b.{{0,120}}|"
    r".{0,120}(?:noreply|no-reply|\[bot\]).{0,80})",
    re.IGNORECASE,
)


def neutral(text: str) -> str:
    """The text without them; where there are none, as it is."""
    kept = _without_comments(text)
    lines = kept.splitlines(keepends=True)
    left = [line for line in lines if not _is_branding(line.rstrip("\r\n"))]
    if kept == text and len(left) == len(lines):
        return text
    return re.sub(r"\n{3,}", "\n\n", "".join(left)).rstrip()


def _without_comments(text: str) -> str:
    parts, at = [], 0
    while (found := _COMMENT.search(text, at)) is not None:
        end = text.find("-->", found.end())
        if end < 0:
            break  # it is none
        parts.append(text[at : found.start()])
        at = end + len("-->")
    return "".join([*parts, text[at:]])


def _is_branding(line: str) -> bool:
    if len(line) > 500:
        return False
    if any(pattern.fullmatch(line) for pattern in (_COPYRIGHT, _SPDX, _TRAILER)):
        return True
    made = _GENERATED.fullmatch(line)
    return made is not None and _BY_A_TOOL.match(made["by"]) is not None
