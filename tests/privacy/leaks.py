"""A search for a marker in bytes, in any form.

`find` finds a marker of ASCII letters and digits: as text in any case; in UTF-16 and UTF-32; in hex, base64 and
base64url at any alignment, with line breaks or without; with some or all characters escaped (JSON, Python, URLs, HTML);
and in zlib, gzip, bz2, xz and lzma streams, which may be incomplete or encoded themselves. The form of a leak is a
path such as `base64>zlib>text`.
"""

import base64
import binascii
import bz2
import json
import lzma
import pickle
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

MAX_DEPTH = 4  # encodings inside encodings
MAX_STREAM = 4 << 20  # bytes from one compressed stream
_AROUND = 200  # bytes on either side of an escape
_CHUNK = 512  # small, so that an incomplete or damaged stream still yields its beginning


@dataclass(frozen=True)
class Leak:
    """The place and the form of a marker."""

    where: str
    form: str
    offset: int


def find(data: bytes, marker: str, where: str = "", depth: int = MAX_DEPTH) -> list[Leak]:
    """Every form of the marker in these bytes, each with its first place. A depth of 0 decodes nothing and is fast."""
    found: dict[str, Leak] = {}
    for form, offset in _search(data, marker, depth):
        found.setdefault(form, Leak(where, form, offset))
    return list(found.values())


def find_in_files(paths: Iterable[Path], marker: str) -> list[Leak]:
    return [leak for path in paths if path.is_file() for leak in find(path.read_bytes(), marker, path.name)]


def find_in_value(value: object, marker: str, where: str = "") -> list[Leak]:
    """In any value of a program: text, bytes, or the repr, the JSON and the pickle of anything else."""
    if isinstance(value, bytes | bytearray | memoryview):
        return find(bytes(value), marker, where)
    if isinstance(value, str):
        return find(value.encode("utf-8", "surrogatepass"), marker, where)
    forms = [repr(value).encode("utf-8", "surrogatepass")]
    for write in (lambda: json.dumps(value, default=repr).encode(), lambda: pickle.dumps(value)):
        try:
            forms.append(write())
        except Exception:  # noqa: BLE001, S112  a value without this form cannot leak in it
            continue
    return [leak for form in forms for leak in find(form, marker, where)]


def _search(data: bytes, marker: str, depth: int) -> Iterator[tuple[str, int]]:
    for text, needles in ((data.lower(), _plain(marker.lower())), (data, _encoded(marker))):
        for form, needle in needles:
            offset = text.find(needle)
            if offset >= 0:
                yield form, offset
    if depth:
        for form, offset, inner in _inside(data):
            yield from ((f"{form}>{rest}", offset) for rest, _ in _search(inner, marker, depth - 1))


def _inside(data: bytes) -> Iterator[tuple[str, int, bytes]]:
    """(form, first place, all decoded bytes) of each form that can be decoded."""
    gathered: dict[str, tuple[int, list[bytes]]] = {}
    for form, place, inner in _each_inside(data):
        if inner:
            gathered.setdefault(form, (place, []))[1].append(inner)
    for form, (place, pieces) in gathered.items():
        yield form, place, b"\0".join(pieces)


def _each_inside(data: bytes) -> Iterator[tuple[str, int, bytes]]:
    for start, window in _escaped(data):
        characters = _ESCAPE.sub(_character, window)
        yield "escaped", start, characters
        for octets in {pattern.sub(_byte, window) for pattern in _BYTE_ESCAPES} - {characters}:
            yield "escaped bytes", start, octets
    yield from _as_latin_1(data)
    for form, pattern, decode in _WRAPPINGS:
        starts: dict[bytes, int] = {}
        for match in pattern.finditer(data):
            starts.setdefault(match[0], match.start())  # a log repeats the same words thousands of times
        for run, start in starts.items():
            yield from ((form, start, inner) for inner in decode(run))
    for form, pattern, opener in _STREAMS:
        for match in pattern.finditer(data):
            yield form, match.start(), _decompressed(data, match.start(), opener)


@lru_cache(maxsize=64)
def _plain(lowered: str) -> list[tuple[str, bytes]]:
    """Needles in lower case."""
    codecs = {"text": "ascii", "utf-16-le": "utf-16-le", "utf-16-be": "utf-16-be", "utf-32": "utf-32-le"}
    return [(form, lowered.encode(codec)) for form, codec in codecs.items()]


@lru_cache(maxsize=64)
def _encoded(marker: str) -> tuple[tuple[str, bytes], ...]:
    """Needles that depend on the marker's case: hex and base64 of the marker, in its own, lower and upper case."""
    needles: list[tuple[str, bytes]] = []
    for text in dict.fromkeys((marker, marker.lower(), marker.upper())):
        for codec in ("utf-8", "utf-16-le", "utf-16-be"):
            raw = text.encode(codec)
            needles += [("hex", raw.hex().encode()), ("hex", raw.hex().upper().encode())]
            needles += [("base64", needle) for needle in _base64_needles(raw, base64.b64encode)]
            needles += [("base64url", needle) for needle in _base64_needles(raw, base64.urlsafe_b64encode)]
    return tuple(dict.fromkeys(needles))


def _base64_needles(raw: bytes, encode: Callable[[bytes], bytes]) -> Iterator[bytes]:
    """The base64 of these bytes at each of the three alignments, without the characters that also encode others."""
    for before in range(3):
        start = (before * 8 + 5) // 6
        whole_bits = (before + len(raw)) * 8
        yield encode(b"\0" * before + raw)[start : whole_bits // 6]


# The first character class makes the search fast.
_ESCAPE = re.compile(
    rb"[\\%=&](?:"
    rb"(?<=\\)\\*(?:u(?P<u>[0-9a-fA-F]{4})|u\{(?P<b>[0-9a-fA-F]{1,6})\}|x(?P<x>[0-9a-fA-F]{2})|(?P<o>[0-3][0-7]{2}))"
    rb"|(?<=%)(?:u(?P<pu>[0-9a-fA-F]{4})|(?P<p>[0-9a-fA-F]{2}))"
    rb"|(?<==)(?P<q>[0-9A-F]{2})"
    rb"|(?<=&)\#(?:x(?P<hx>[0-9a-fA-F]{2,6})|(?P<h>\d{2,7}));"
    rb")"
)
_BASES = {"u": 16, "b": 16, "x": 16, "pu": 16, "p": 16, "q": 16, "hx": 16, "h": 10, "o": 8}
# With one level of escapes, and with several.
_BYTE_ESCAPES = (
    re.compile(rb"\\(?:u00|x)([0-9a-fA-F]{2})|\\([nrtbfav0'\"\\/])"),
    re.compile(rb"\\+(?:u00|x)([0-9a-fA-F]{2})|\\+([nrtbfav0'\"/])"),
)
_BYTES = dict(zip(b"nrtbfav0", b"\n\r\t\b\f\a\v\0", strict=True))


def _escaped(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The parts of the data with escapes, and the bytes around them."""
    start = end = -1
    for match in _ESCAPE.finditer(data):
        if start >= 0 and match.start() > end:
            yield start, data[start:end]
            start = -1
        if start < 0:
            start = max(0, match.start() - _AROUND)
        end = match.end() + _AROUND
    if start >= 0:
        yield start, data[start:end]


def _character(match: re.Match[bytes]) -> bytes:
    name = str(match.lastgroup)
    number = int(match[name], _BASES[name])
    if name in ("x", "p", "q", "o"):
        return bytes([number & 0xFF])
    return chr(number).encode("utf-8", "surrogatepass") if number < 0x110000 else match[0]


def _byte(match: re.Match[bytes]) -> bytes:
    """A byte in text: in repr(b"…"), or as Latin-1 in JSON."""
    return bytes([int(match[1], 16) if match[1] else _BYTES.get(match[2][0], match[2][0])])


def _as_latin_1(data: bytes) -> Iterator[tuple[str, int, bytes]]:
    if not data.isascii():
        try:
            yield "latin-1", 0, data.decode().encode("latin-1", "ignore")
        except UnicodeDecodeError:
            return


def _from_hex(run: bytes) -> Iterator[bytes]:
    for start in (0, 1):
        yield binascii.unhexlify(run[start : start + (len(run) - start) // 2 * 2])


def _from_base64(run: bytes) -> Iterator[bytes]:
    joined = re.sub(rb"\\[nr]|\s|=", b"", run)
    if not _ONLY_HEX.match(joined):
        for start in range(4):
            yield binascii.a2b_base64(joined[start:] + b"A" * (-(len(joined) - start) % 4))


def _from_base64url(run: bytes) -> Iterator[bytes]:
    if b"-" in run or b"_" in run:  # otherwise it is base64
        yield from _from_base64(run.translate(_TO_BASE64))


_TO_BASE64 = bytes.maketrans(b"-_", b"+/")
_ONLY_HEX = re.compile(rb"[0-9a-f]+\Z|[0-9A-F]+\Z")
_WRAPPINGS: tuple[tuple[str, re.Pattern[bytes], Callable[[bytes], Iterator[bytes]]], ...] = (
    ("hex", re.compile(rb"[0-9a-fA-F]{24,}"), _from_hex),
    # In one line, or in several as in mail and PEM files.
    ("base64", re.compile(rb"[A-Za-z0-9+/]{20,}(?:(?:\s{1,2}|\\[nr])[A-Za-z0-9+/]{4,})*={0,2}"), _from_base64),
    ("base64url", re.compile(rb"[A-Za-z0-9_-]{20,}={0,2}"), _from_base64url),
)


def _zlib_headers() -> Iterator[bytes]:
    """The first two bytes of a zlib stream, for each window size: a multiple of 31, without a dictionary."""
    for first in range(0x08, 0x79, 0x10):
        second = [b for b in range(256) if (first << 8 | b) % 31 == 0 and not b & 0x20]
        yield re.escape(bytes([first])) + b"[" + b"".join(re.escape(bytes([b])) for b in second) + b"]"


def _lzma() -> lzma.LZMADecompressor:
    return lzma.LZMADecompressor(memlimit=64 << 20)  # random bytes may look like a header that needs gigabytes


_STREAMS: tuple[tuple[str, re.Pattern[bytes], Callable[[], Any]], ...] = (
    ("zlib", re.compile(b"|".join(_zlib_headers()), re.DOTALL), zlib.decompressobj),
    ("gzip", re.compile(rb"\x1f\x8b\x08"), lambda: zlib.decompressobj(wbits=31)),
    ("bz2", re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)"), bz2.BZ2Decompressor),
    ("xz", re.compile(rb"\xfd7zXZ\0"), _lzma),
    ("lzma", re.compile(rb"\x5d\0\0[\0-\xff]{2}(?:\xff{8}|[\0-\xff]{5}\0{3})"), _lzma),
)


def _decompressed(data: bytes, start: int, opener: Callable[[], Any]) -> bytes:
    """The content of a stream; of an incomplete or damaged one, its beginning."""
    stream, out = opener(), bytearray()
    try:
        for place in range(start, len(data), _CHUNK):
            out += stream.decompress(data[place : place + _CHUNK])
            if stream.eof or len(out) > MAX_STREAM:
                break
    except (zlib.error, OSError, lzma.LZMAError, EOFError, ValueError):
        pass  # it is no stream, or it ends here
    return bytes(out)
