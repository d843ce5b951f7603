"""Phrases that all interfaces use."""


def several(number: int, one: str, many: str = "") -> str:
    """A number with its noun: "1 trail", "2,000 trails". Give `many` only if the plural is not `one` with an s."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


# For `str.translate`: some programs end a line at these characters.
LINE_ENDS = {code: f"\\u{code:04x}" for code in (0x85, 0x2028, 0x2029)}
