"""Words that exclude each other: before and after, likes and dislikes, brother and sister.

Such a word is lost only where the result puts one that excludes it in its place. Leaving it out, or a synonym, passes:
there are too many of those to list.
"""

from collections.abc import Iterator, Sequence

from refinement.specifics.text import Specific, Word, stem

# One group a line; "/" parts what excludes each other, spaces part what means the same here.
_GROUPS = """
before / after
increase increased rise rises rose raise raised grow grew higher / decrease drop dropped fall falls fell reduce lower
left / right
win won wins winning / lose lost loses losing
like love enjoy prefer adore / dislike hate detest loathe
enable / disable
allow permit / forbid prohibit deny
open / closed close
start began begin begins / stop ended end ends quit
true / false
more / less fewer
most / least
always / sometimes / rarely seldom
north northern / south southern / east eastern / west western
morning mornings / afternoon / evening evenings
daily / weekly / monthly / yearly annually annual / hourly / nightly
minimum min / maximum max
above / below
synchronous sync / asynchronous async
public / private
succeed success succeeded / fail failed failure
accept accepted / reject rejected decline
agree agreed / disagree disagreed
married / divorced / engaged / widowed
hot / cold
early earlier / late later
cheap cheaper / expensive
internal / external
upload / download
encrypt / decrypt
encrypted / unencrypted
connect / disconnect
install / uninstall
primary / secondary
development dev / staging / production prod
small smaller smallest / large larger largest big bigger biggest
red / blue / green / yellow / purple / orange / pink / brown / grey gray / black / white
mother mom mum / father dad / sister / brother / aunt / uncle / grandmother grandma / grandfather grandpa / cousin
son / daughter / wife / husband / nephew / niece
boy / girl
vegan / vegetarian
ascending / descending
optional / required mandatory
read-only / writable
"""


def _sides() -> dict[str, tuple[int, int]]:
    table: dict[str, tuple[int, int]] = {}
    for group, line in enumerate(_GROUPS.strip().splitlines()):
        for side, words in enumerate(line.split("/")):
            for word in words.split():
                table.setdefault(stem(word), (group, side))
    return table


_SIDES = _sides()
Sides = dict[tuple[int, int], list[Word]]  # by group and side


def sides_in(words: Sequence[Word], negated: frozenset[str]) -> Sides:
    """The sides a text takes, each with its words; not those it denies ("does not like")."""
    found: Sides = {}
    for word in words:
        side = _SIDES.get(word.stem)
        if side and word.stem not in negated:
            found.setdefault(side, []).append(word)
    return found


def replaced(before: Sides, after: Sides) -> Iterator[Specific]:
    """The sides of `before` taken less often in `after`, where another side of the group is taken more often."""
    grown = {side[0] for side, words in after.items() if len(words) > len(before.get(side, ()))}
    for side, words in before.items():
        if side[0] in grown and len(after.get(side, ())) < len(words):
            yield Specific("polarity", words[0].text, f"{side[0]}/{side[1]} {words[0].stem}")
