"""How many lossy rewrites the specifics check catches, and how many faithful ones it refuses.

Two sets of labelled rewrites:
- shipped: written by hand, `tests/data/rewrites.jsonl`;
- LoCoMo: made at run time from the five ledgers, left out if they aren't there. A case is two to four memories of one
  speaker, with one or two details whose other forms, and lossy forms, are written down below.

Labels come from construction, by plain substitution, never from the code under test. Each set is split in halves by a
hash of the case: the check was tuned on one and is reported on both.
"""

from __future__ import annotations

import json
import random
import re
import statistics
import zlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from refinement.specifics import missing
from tests.bench.figures import Figure, at_least, at_most
from tests.bench.places import ROOT, ledgers

SHIPPED = ROOT / "tests" / "data" / "rewrites.jsonl"
CAUGHT_TARGET, REFUSED_TARGET = 98, 5  # %


@dataclass(frozen=True)
class Case:
    id: str
    label: str  # faithful|rephrased|lossy
    kind: str  # what was lost; empty unless lossy
    sources: tuple[str, ...]
    result: str

    @property
    def half(self) -> str:
        return "tuned" if zlib.crc32(b"palimpsest" + self.id.encode()) % 2 == 0 else "held out"


# A detail of a memory: its kind, how a source says it, how else it may be said, and how it gets lost.
# {n} is the speaker, {p} the pronoun.
DETAILS: tuple[tuple[str, str, tuple[str, ...], tuple[str, ...]], ...] = (
    ("number", "{n} paid 45 euros for it.", ("{p} paid €45 for it", "{p} paid forty-five euros for it"),
     ("{p} paid 54 euros for it", "{p} paid some money for it", "{p} paid 45 dollars for it")),
    ("number", "{n} has done this for three years.", ("{p} has done this for 3 years",),
     ("{p} has done this for several years", "{p} has done this for two years")),
    ("number", "{n} invited 12 people.", ("{p} invited twelve people", "12 people were invited by {p}"),
     ("{p} invited people", "{p} invited 20 people")),
    ("number", "{n} carried 20 kg of books.", ("{p} carried twenty kilograms of books",),
     ("{p} carried many books", "{p} carried 200 kg of books")),
    ("number", "About 30 percent of it was {n}'s idea.", ("about 30% of it was {p} idea",),
     ("part of it was {p} idea", "about 13 percent of it was {p} idea")),
    ("date", "This was on 14 June 2022.", ("this was on June 14, 2022", "this was on 2022-06-14"),
     ("this was in June", "this was on 15 June 2022", "this was some time ago")),
    ("date", "{n} wants to finish by the 3rd of October.",
     ("{p} wants to finish by October 3", "{p} wants to finish by 3 October"),
     ("{p} wants to finish soon", "{p} wants to finish by the 5th of October")),
    ("date", "{n} goes there every Thursday.", ("on Thursdays {p} goes there",),
     ("{p} goes there every week", "{p} goes there every Tuesday")),
    ("date", "It began in March 2021.", ("it started in March 2021", "it began in 2021-03"),
     ("it began in 2021", "it began a while back", "it began in March 2020")),
    ("time", "It starts at 7:30 pm.", ("it starts at 19:30", "it begins at 7:30 p.m."),
     ("it starts in the evening", "it starts at 8:30 pm", "it starts")),
    ("time", "{n} gets up at 6 am.", ("{p} gets up at 6:00", "at 6 a.m. {p} gets up"),
     ("{p} gets up early", "{p} gets up at 9 am")),
    ("quote", '{n} called it "a second spring".',
     ("{p} called it “a second spring”", "{p} called it 'a second spring'"),
     ("{p} was happy about it", '{p} called it "a new start"')),
    ("quote", 'The sign reads "Mind the geese".', ("“Mind the geese”, the sign reads",),
     ("the sign warns of animals", "there is a sign")),
    ("name", "{n} went there with Marguerite.", ("{p} went there together with Marguerite",),
     ("{p} went there with a friend", "{p} went there with Josephine", "{p} went there")),
    ("name", "The shop is called Copper Lantern.", ("the name of the shop is Copper Lantern",),
     ("the shop has a nice name", "the shop is called Silver Lantern")),
    ("name", "{n}'s cousin lives in Ljubljana.", ("{p} cousin is living in Ljubljana",),
     ("{p} cousin lives abroad", "{p} cousin lives in Zagreb")),
    ("url", "The details are at https://events.example.org/2041/join.",
     ("see https://events.example.org/2041/join for the details",),
     ("the details are online", "the details are at https://events.example.org")),
    ("email", "Answers go to {l}@mail.example.net.", ("write to {l}@mail.example.net with answers",),
     ("answers go by e-mail", "answers go to info@mail.example.net")),
    ("identifier", "The ticket is REF-80412.",
     ("ticket: REF-80412",), ("there is a ticket", "the ticket is REF-80421")),
    ("identifier", "The photos are in ~/pictures/june_trip.", ("photos can be found in ~/pictures/june_trip",),
     ("the photos are in a folder", "the photos are in ~/pictures/july_trip")),
    ("negation", "{n} does not want to sell it.", ("{p} doesn't want to sell it", "{p} never wants to sell it"),
     ("{p} wants to sell it",)),
    ("negation", "{n} can't eat peanuts.", ("{p} cannot eat peanuts", "peanuts are something {p} can not eat"),
     ("{p} can eat peanuts", "{p} eats peanuts")),
    ("negation", "{n} has no driving licence.",
     ("{p} doesn't have a driving licence", "{p} is without a driving licence"),
     ("{p} has a driving licence",)),
    ("negation", "{n} no longer lives downtown.", ("{p} doesn't live downtown anymore",), ("{p} lives downtown",)),
    ("polarity", "{n} arrived before the others.",
     ("before the others, {p} arrived",), ("{p} arrived after the others",)),
    ("polarity", "{n}'s sister dislikes it.", ("{p} sister doesn't like it", "{p} sister hates it"),
     ("{p} sister likes it", "{p} brother dislikes it")),
)  # fmt: skip

SYNONYMS = {
    "enjoys": "likes", "started": "began", "attended": "went to", "excited": "thrilled", "kids": "children",
    "children": "kids", "difficult": "hard", "believes": "thinks", "wants to": "would like to", "bought": "purchased",
    "is planning to": "intends to", "is considering": "is thinking about", "helps": "supports", "huge": "very big",
    "important": "essential", "discussed": "talked about", "appreciates": "values", "received": "got",
    "job": "position",
    "finds": "considers", "amazing": "great", "because": "as", "however": "but", "wonderful": "lovely",
    "grateful": "thankful",
    "does not": "doesn't", "did not": "didn't", "has not": "hasn't", "is not": "isn't", "cannot": "can't",
    "two": "2", "three": "3", "four": "4", "five": "5", "first": "1st", "fifteen": "15", "ten": "10",
}  # fmt: skip
FILLER = re.compile(r"\b(?:really|very|just|definitely|simply|currently|actually|quite|truly) ")
PRONOUNS = {
    **dict.fromkeys(("Caroline", "Melanie", "Gina", "Maria", "Joanna"), ("she", "her")),
    **dict.fromkeys(("Jon", "John", "Nate", "Tim"), ("he", "his")),
}
RELATIVE = re.compile(
    r"\b(?:yesterday|tomorrow|today|(?:last|next|this past) "
    r"(?:week|weekend|month|year|summer|night|(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day)"
    r"|(?:a |one |two |three |a few |few |\d+ )?(?:days?|weeks?|months?|years?) ago)\b"
)
MID_NAME = re.compile(r"(?<=[a-z] )[A-Z][a-z]{2,}(?: [A-Z][a-z]+)*")
NEGATION = re.compile(r"\b(do|does|did|is|was|has|have|had|could|would)(?: not|n't)\b(?! only)|\bnever ")
COUNT = re.compile(
    r"\b(?:two|three|four|five|six|seven|eight|ten|fifteen|\d+)\b(?! (?:days?|weeks?|months?|years?) ago)"
)


def run(*, quick: bool) -> Iterator[Figure]:
    yield from judged("shipped", list(shipped()))
    if found := [] if quick else ledgers():
        yield from judged("LoCoMo", list(from_ledgers(found, random.Random(7))))


def judged(name: str, cases: list[Case]) -> Iterator[Figure]:
    """The shares that the check flags, of all the cases and of each half."""
    flagged = [(case, bool(missing(case.sources, case.result))) for case in cases]
    for half in ("both", "tuned", "held out"):
        chosen = [(case, flag) for case, flag in flagged if half in ("both", case.half)]
        lossy, others = (
            [flag for case, flag in chosen if (case.label == "lossy") == is_lossy] for is_lossy in (True, False)
        )
        what = f"{name}, {half}: of {len(lossy):,} lossy rewrites, caught"
        yield at_least(what, 100 * statistics.mean(lossy), "%", CAUGHT_TARGET)
        what = f"{name}, {half}: of {len(others):,} faithful and rephrased ones, refused"
        yield at_most(what, 100 * statistics.mean(others), "%", REFUSED_TARGET)


def shipped() -> Iterator[Case]:
    for line in SHIPPED.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        # A letter after the number tells the rewrites of one set of sources apart: they stay in one half.
        yield Case(
            row["id"].rstrip("abcdefgh"), row["label"], row.get("kind", ""), tuple(row["sources"]), row["result"]
        )


def from_ledgers(found: Sequence[Path], rng: random.Random) -> Iterator[Case]:
    for ledger in found:
        rows = [json.loads(line) for line in ledger.read_text("utf-8").splitlines()]
        groups = defaultdict(list)
        for row in rows:
            if row["content"].startswith(row["speaker"]) and row["speaker"] in PRONOUNS:
                groups[row["speaker"], row["created_at"]].append(row["content"])
        for number, ((speaker, _), contents) in enumerate(sorted(groups.items())):
            rng.shuffle(contents)
            for part in range(min(2, len(contents) // 2)):
                chosen = contents[part * 3 : part * 3 + rng.randint(1, 3)]
                if chosen:
                    yield from cases_of(f"{ledger.name.split('.')[0]}-{number}-{part}", speaker, chosen, rng)


def cases_of(key: str, speaker: str, memories: list[str], rng: random.Random) -> Iterator[Case]:
    """One faithful, one rephrased and up to three lossy rewrites of the same sources."""
    details = rng.sample(DETAILS, 1 if len(memories) > 2 else 2)
    filled = [fill(detail[1], speaker, named=True) for detail in details]
    sources = (*memories, *filled)
    kept = [rng.choice(detail[2]) for detail in details]
    yield Case(key, "faithful", "", sources, faithful(speaker, memories, filled, kept, rng))
    yield Case(key, "rephrased", "", sources, fused(speaker, memories, kept, rng))
    for at, detail in enumerate(details):
        lossy = [*kept[:at], rng.choice(detail[3]), *kept[at + 1 :]]
        yield Case(key, "lossy", detail[0], sources, fused(speaker, memories, lossy, rng))
    for kind, damaged in damages(speaker, memories, rng):
        yield Case(key, "lossy", kind, sources, fused(speaker, damaged, kept, rng))


def fill(template: str, speaker: str, *, named: bool) -> str:
    subject, possessive = PRONOUNS[speaker]
    if named:
        subject, possessive = speaker, f"{speaker}'s"
    text = re.sub(r"\{p\}(?= (?:idea|cousin|sister|brother)\b)", possessive, template)
    return text.format(n=speaker, p=subject, l=speaker.lower())


def faithful(speaker: str, memories: list[str], filled: list[str], kept: list[str], rng: random.Random) -> str:
    """Sentence by sentence, with common words exchanged, in another order; some details in another form."""
    said = [reworded(text, rng) for text in memories]
    forms = [
        capital(fill(form, speaker, named=True)) + "." if rng.random() < 0.7 else own
        for own, form in zip(filled, kept, strict=True)
    ]
    rng.shuffle(said)
    return " ".join([*said, *forms])


def fused(speaker: str, memories: list[str], details: list[str], rng: random.Random) -> str:
    """Sentences run together, the subject named once, filler left out."""
    subject, possessive = PRONOUNS[speaker]
    clauses = [FILLER.sub("", memories[0].rstrip("."))]
    for memory in memories[1:]:
        text = FILLER.sub("", memory.rstrip("."))
        text = re.sub(rf"^{speaker}'s\b", possessive, re.sub(rf"^{speaker}\b(?!')", subject, text))
        clauses.append(text)
    clauses += [fill(form, speaker, named=False) for form in details]
    text = clauses[0]
    for clause in clauses[1:]:
        joint = rng.choice(("; ", ", and ", ". "))
        text += joint + (capital(clause) if joint == ". " else clause)
    return text + "."


def reworded(text: str, rng: random.Random) -> str:
    for old, new in SYNONYMS.items():
        if rng.random() < 0.8:
            text = re.sub(rf"\b{old}\b(?!-)", new, text, count=1)
    return text


def capital(text: str) -> str:
    return text[0].upper() + text[1:]


def damages(speaker: str, memories: list[str], rng: random.Random) -> Iterator[tuple[str, list[str]]]:
    """The memories with one thing lost, at most one of each kind and two in all."""
    subject, possessive = PRONOUNS[speaker]
    nobody = [re.sub(rf"\b{speaker}'s\b", possessive, m) for m in memories]
    found = [("name", [re.sub(rf"\b{speaker}\b", subject, m) for m in nobody])] if rng.random() < 0.25 else []
    for kind, pattern, replacement in (
        ("date", RELATIVE, ""),
        ("name", MID_NAME, "someone"),
        ("negation", NEGATION, r"\1"),
        ("number", COUNT, "some"),
    ):
        found += [(kind, damaged) for damaged in [damage(memories, pattern, replacement, speaker)] if damaged]
    yield from found[:2]


def damage(memories: list[str], pattern: re.Pattern[str], replacement: str, speaker: str) -> list[str] | None:
    """The memories with what `pattern` first finds replaced wherever it stands; the speaker is never it."""
    for memory in memories:
        match = pattern.search(memory)
        if match and match[0] != speaker and sum(match[0] in other for other in memories) == 1:
            lost = match.expand(replacement) if match.re.groups and match[1] else replacement.replace(r"\1", "")
            return [other.replace(match[0], lost).replace("  ", " ") for other in memories]
    return None
