"""Remove licence notices and the signatures of tools from text.

Only the notice is removed from a line. Other text in the line stays. Ordinary sentences about a licence, a tool or a
person also stay.
"""

import re
from itertools import groupby

_COMMENT = re.compile(
    r"<!--\s{0,20}(?:licen[cs]e|metadata|copyright|spdx-license-identifier)(?:(?!<!--|-->)[\s\S])*-->", re.IGNORECASE
)
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
# Names of tools that are also names of people or of other things.
_SHARED = frozenset(("aider", "amp", "claude", "cline", "codex", "cursor", "devin", "gemini", "jules"))
_MAKERS = "anthropic|openai|cursor|cognition|devin|aider|windsurf|codeium|all-hands|openhands"
_LEAD = r"[ \t>#*/_;|-]{0,20}"  # quotes, comments, bullets, emphasis
_LAW = r"\b(?:licen[cs]ed under|released under|under the [^?.\n]{0,60}licen[cs]e|all rights reserved)\b"
_NOTICE = re.compile(
    r"(?P<made>(?P<how>generated|created|written|made|produced|powered)[ ](?:(?P<with>with|using)|by)[ ](?:the[ ])?"
    r"(?:(?P<link>\[[^\]\n]{1,80}\]\(https?://[^)\s]{1,160}\))|"
    rf"(?P<tool>{_TOOLS})\b(?:[ ]v?\d[\w.]{{0,10}})?(?P<at>[ ]?[(<]?https?://[^\s)>]{{1,120}}[)>]?)?|"
    r"(?P<unknown>(?-i:[A-Z])[\w.-]{0,30}(?:[ ](?-i:[A-Z])[\w.-]{0,30}){0,3})))|"
    r"(?P<trailer>(?:(?:co-authored-by|assisted-by|generated-by):[ \t]{0,3}(?:[^<\n]{0,100}<(?:(?:[^>\n]{0,60}\b)?"
    rf"no-?reply@[^>\n]{{1,80}}|[^>@\n]{{1,60}}@(?:[\w-]{{1,30}}\.)?(?:{_MAKERS})\.\w{{2,5}})>|"
    rf"[\w-]{{1,60}}\[bot\](?:[ ]<[^>\n]{{0,100}}>)?|(?:{_TOOLS})\b)[ \t]{{0,3}}){{1,20}})|"
    rf"(?:(?:copyright\b[ \t]{{0,3}})?(?:\(c\)|©)|copyright(?=[ \t]{{1,3}}\d{{4}}))"
    rf"(?:(?!©|\(c\))[^?\n]){{0,300}}?{_LAW}"
    r"(?:[^?.,;:\n]|\.(?=\S)|,(?= version)){0,160}|"
    r"SPDX-(?:License-Identifier:[^?\n]{1,100}?|FileCopyrightText:[^?\n]{1,160}?)(?=[ \t]{0,3}(?:\*/|-->|\n|\Z))",
    re.IGNORECASE,
)
# A notice begins at the start of a line, after a sentence, in parentheses, in a comment, or with an emoji.
_BEFORE = re.compile(
    rf"(?P<edge>(?P<start>\A{_LEAD})|[.!?)\]>][*_]{{0,2}}[ \t]{{1,3}})?"
    r"(?P<cut>(?:[ \t][|–—-][ \t]{1,3}|\(|[ \t](?:#|//|/\*|--)[ \t]{0,3})?"
    r"(?:(?<!\S)(?P<emoji>[\u2600-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff\ufe0f\u200d]{1,4}[ \t]{0,3}))?[*_]{0,2})\Z"
)
_ASKED = re.compile(
    r"\b(?:add|append|include|omit|put|remove|use|write|with|without|no|the|an?|any|every|like|says?)\s\Z"
)
# A notice ends at the end of a line or of a sentence.
_AFTER = re.compile(
    r"[.!*_)]{0,6}(?:[ \t]{0,3}(?:\*/|-->))?[ \t]{0,6}\Z|"
    r"[*_]{0,2}(?:[.!][*_)]{0,3}(?=[ \t])|\)[.]?)|(?P<goes_on>[*_]{0,2})"
)
_PASSES = 5  # after one notice is removed, another notice can be at the end of the line
# A line with the owner, and a following line with the licence.
_OWNED = re.compile(
    rf"^{_LEAD}(?:copyright[ \t]{{0,3}}(?:\(c\)|©|(?=\d{{4}}))|\(c\)|©)[ \t]{{0,3}}\w[^?\n]{{0,120}}\n"
    rf"(?:[ \t\r]{{0,9}}\n){{0,3}}{_LEAD}(?:all rights reserved|"
    r"(?:licen[cs]ed|released|distributed) under [^?.,;\n]{0,60}licen[cs]e(?:,? (?:version )?[\d.]{1,8})?)"
    r"[.!*_ \t\r]{0,6}(?:\n|\Z)",
    re.IGNORECASE | re.MULTILINE,
)

# The header of a file: consecutive comment lines that contain the owner and the licence.
_IN_COMMENT = re.compile(r"[ \t]*(?:#(?![#!])|//|--|;|\*|/\*)")
_OWNER = re.compile(r"copyright|\(c\)|©|spdx-", re.IGNORECASE)
_TERMS = re.compile(
    r"licen[cs]ed under|governed by a|permission is hereby granted|redistribut|free software|all rights reserved|"
    r"spdx-license-identifier|in compliance with the licen[cs]e",
    re.IGNORECASE,
)
_HEADER = range(3, 60)  # lines of a header


def neutral(text: str) -> str:
    """Return the text without notices, or "" if nothing is left. A text that has no notices does not change."""
    for _ in range(_PASSES):
        before, text = text, _without_some(text)
        if text == before:
            break
    return text


def neutral_whole(text: str) -> str:
    """Return the text without notices. A text that consists only of notices does not change."""
    return neutral(text) or text


def _without_some(text: str) -> str:
    kept = _COMMENT.sub(lambda found: "" if _LICENCE.search(found[0]) else found[0], text)
    lines = kept.splitlines(keepends=True)
    headers = _headers(lines)
    kept = _OWNED.sub("", "".join(line for n, line in enumerate(lines) if n not in headers))
    kept = "".join(map(_without_notices, kept.splitlines(keepends=True)))
    return text if kept == text else re.sub(r"\n{3,}", "\n\n", kept).rstrip()


def _headers(lines: list[str]) -> set[int]:
    """Return the numbers of the lines in a licence header."""
    found: set[int] = set()
    for is_comment, run in groupby(enumerate(lines), lambda each: _IN_COMMENT.match(each[1]) is not None):
        numbers = [n for n, _ in run] if is_comment else []
        header = "".join(lines[n] for n in numbers) if len(numbers) in _HEADER else ""
        is_list = header.lstrip().startswith("*")
        if _OWNER.search(header) and _TERMS.search(header) and "?" not in header and not is_list:
            found.update(numbers)
    return found


def _without_notices(line: str) -> str:
    """Return the line without its notices, or "" if nothing is left."""
    body = line.rstrip("\r\n")
    parts, at = [], 0
    for found in _NOTICE.finditer(body):
        before = _BEFORE.search(body, max(at, found.start() - 60), found.start())
        after = _AFTER.match(body, found.end())
        if before and after and _is_notice(body, found, before, after):
            parts.append(body[at : before.start("cut")].rstrip())
            at = after.end()
    if not at:
        return line
    left = " ".join(filter(None, (*parts, body[at:].lstrip())))
    return "" if re.fullmatch(_LEAD, left) else left + line[len(body) :]


def _is_notice(body: str, found: re.Match[str], before: re.Match[str], after: re.Match[str]) -> bool:
    if after["goes_on"] is not None and not before["emoji"]:
        return False
    if before["edge"] is None and not before["cut"]:
        is_trailer = found["trailer"] and body[found.start() - 1] in " \t" and after.end() == len(body)
        return bool(is_trailer) and not _ASKED.search(body, max(0, found.start() - 12), found.start())
    begin = before.start("cut")
    if _ASKED.search(body, max(0, begin - 12), begin):
        return False
    return not found["made"] or _is_signature(found, before)


def _is_signature(found: re.Match[str], before: re.Match[str]) -> bool:
    """Return whether "made with X" is a tool's signature, and not a statement about X."""
    if found["unknown"]:
        return "\N{ROBOT FACE}" in (before["emoji"] or "")
    if before["emoji"] or found["at"] or found["how"].lower() == "generated":
        return True
    is_alone = before["start"] is not None
    return is_alone and bool(found["with"] if found["link"] else found["tool"].lower() not in _SHARED)
