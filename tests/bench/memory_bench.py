"""How much memory an import takes: peak resident size of the process (`VmHWM`) beyond what it had after a first
import of 1,000, each number of memories in an agent of its own and the numbers rising, so that a peak is a new one."""

from collections.abc import Iterator

from tests.bench import texts
from tests.bench.agents import filled
from tests.bench.child import mebibytes
from tests.bench.figures import Figure, flat

MOST = 16  # MiB that 50,000 may take more than 2,000: less than their text alone


def run(*, quick: bool) -> Iterator[Figure]:
    counts = (1_000, 2_000, 5_000) if quick else (1_000, 2_000, 10_000, 50_000)
    peaks = []
    for count in counts:
        filled(f"ada{count}", texts.lines(count, count))
        peaks.append(mebibytes("VmHWM"))
    for count, reached in zip(counts[1:], peaks[1:], strict=True):
        yield Figure(f"import of {count:,}: resident peak grows by", reached - peaks[0], "MiB")
    yield flat(f"… and beyond that of {counts[1]:,} by", peaks[-1] - peaks[1], MOST)
