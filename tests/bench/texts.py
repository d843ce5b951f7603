"""Memories as an agent might write them: about 300 characters, dated, with names, figures and opinions; seeded.

Most of their nouns are of 20,000 invented ones, by Zipf's law as in real text: with a few hundred words in all, every
word would be in every tenth memory, and search would be nothing like the real thing.
"""

import json
import random
from collections.abc import Iterator
from itertools import accumulate

from tests.bench.search_bench import invented_words

PEOPLE = """
    Amara Ben Chiara Dmitri Elif Farah Goran Hanna Ines Jonas Kavita Leo Mina Noor Oskar Priya Quentin Rosa Sven
    Tamar Uma Viktor Wanda Yusuf Zoe Adrian Bea Carlos Daphne Emre
""".split()  # noqa: SIM905  a list of words reads better so
PLACES = """
    Porto Leipzig Utrecht Bologna Ghent Aarhus Gdansk Malmo Graz Lyon Bilbao Turku Brno Cork Split Tartu Basel Kyoto
    Osaka Quito
""".split()  # noqa: SIM905  a list of words reads better so
THINGS = """
    allotment archive bakery bicycle boiler bookshop budget calendar camera choir chess client contract course
    deadline deployment design dentist dinner draft engine exhibition festival fence garden greenhouse guitar
    harbour invoice jacket kitchen ladder landlord lease library manuscript market meeting mortgage museum
    newsletter notebook office orchard oven passport piano pipeline pottery printer project proposal recipe release
    report roof sailboat schedule server sketch sourdough spreadsheet studio survey telescope ticket tournament
    train translation tutorial upgrade vaccine violin visa warranty website window workshop
""".split()  # noqa: SIM905  a list of words reads better so
KINDS = """
    annual blue borrowed broken careful cheap cold crowded early electric elderly empty expensive familiar final
    foggy gentle handmade hidden honest impatient joint late local lonely modest narrow noisy northern old open
    patient planned polite quiet rainy regular second-hand shared silver simple slow small southern spare steep
    stubborn sunny temporary tidy unexpected urgent weekly wooden
""".split()  # noqa: SIM905  a list of words reads better so
DEEDS = """
    abandoned admired arranged asked-about booked cancelled checked cleaned collected compared delayed described
    drew explained finished forgot fixed found inherited kept learned measured mentioned missed moved ordered
    painted photographed planned postponed praised promised questioned rebuilt recommended refused rented repaired
    replaced returned reviewed sketched sold studied tested translated visited weighed
""".split()  # noqa: SIM905  a list of words reads better so
REASONS = (
    "because it was cheaper",
    "after a long talk",
    "although nobody asked",
    "before the others arrived",
    "in spite of the weather",
    "to save time",
    "for a friend who could not come",
    "as agreed in spring",
    "without telling anyone",
    "while the children slept",
    "since the old one leaked",
    "so that the week stays free",
)
MONTHS = """
    January February March April May June July August September October November December
""".split()  # noqa: SIM905  a list of words reads better so
SENTENCES = (
    "{who} {did} the {kind} {thing} in {place} on {day} {month} {year}, {reason}.",
    "{who} prefers the {kind} {thing} to the {kind2} one and does not want to talk about the {thing2}.",
    "The {thing} costs {n} euros, which {who} finds too much for a {kind} {thing2}.",
    "On {day} {month} {who} and {who2} {did} a {kind} {thing} near {place}.",
    "{who2} told {who} that the {thing} needs {n} more days, {reason}.",
    "Next to the {thing} stands a {kind} {thing2} that {who} {did} {n} months ago, {reason}.",
    "When the {kind} {thing} failed, {who} {did} the {thing2} and called {who2} at {hour}:15.",
    "{who} is proud of the {kind} {thing}: {n} people came from {place} to see it.",
)


_RARE = invented_words(random.Random("nouns"), 20_000)
_SHARES = list(accumulate(1 / (rank + 5) for rank in range(len(_RARE))))


def noun(chance: random.Random) -> str:
    return chance.choice(THINGS) if chance.random() < 0.3 else chance.choices(_RARE, cum_weights=_SHARES)[0]


def name(chance: random.Random, names: list[str]) -> str:
    return chance.choice(names) if chance.random() < 0.5 else noun(chance).capitalize()


def text(chance: random.Random, characters: int = 300) -> str:
    """Sentences until there are about so many characters."""
    said = ""
    while len(said) < characters - 40:
        said += sentence(chance) + " "
    return said.strip()


def sentence(chance: random.Random) -> str:
    pick = chance.choice
    return pick(SENTENCES).format(
        who=name(chance, PEOPLE),
        who2=name(chance, PEOPLE),
        did=pick(DEEDS).replace("-", " "),
        kind=pick(KINDS),
        kind2=pick(KINDS),
        thing=noun(chance),
        thing2=noun(chance),
        place=name(chance, PLACES),
        reason=pick(REASONS),
        day=chance.randint(1, 28),
        month=pick(MONTHS),
        year=chance.randint(2015, 2026),
        hour=chance.randint(7, 22),
        n=chance.randint(2, 900),
    )


def many(count: int, seed: object = 0) -> list[str]:
    chance = random.Random(f"texts {seed}")
    return [text(chance) for _ in range(count)]


def lines(count: int, seed: object = 0) -> Iterator[bytes]:
    """The same as JSON Lines, one made at a time, for the import."""
    chance = random.Random(f"texts {seed}")
    for place in range(count):
        day = f"2025-{place % 12 + 1:02}-{place % 28 + 1:02}T09:30:00Z"
        yield json.dumps({"content": text(chance), "created_at": day}).encode()
