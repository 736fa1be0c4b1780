"""Measures the reader of Jepsen's EDN: `python -m bench.judging.edn [MEGABYTES]`.

Generates files with values of several shapes, in which invocations and completions alternate. Each
file is read in three ways: as EDN forms; as ops, as in `harness check`; and by the exact reader
alone, which is slow. Some further files are formatted differently from Clojure's output. Times are
CPU seconds of one process, the best of three. The last column is the resident memory that reading
added.
"""

from __future__ import annotations

import random
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.measure import best_s, machine, peaks_mb
from harness.formats.edn.forms import parse_forms, stream_pieces
from harness.formats.edn.jepsen import EdnOps

RUNS = 3
EXACT_MB = 4.0  # the slow exact reader only reads this much of each file


def reads(rng: random.Random, *, ok: bool) -> str:
    return str(rng.randint(0, 9)) if ok else "nil"


def transactions(rng: random.Random, *, ok: bool) -> str:
    micro = []
    for _ in range(rng.randint(1, 4)):
        key = rng.randint(1, 100)
        if rng.random() < 0.5:
            micro.append(f"[:append {key} {rng.randint(1, 1000)}]")
        else:
            seen = " ".join(map(str, range(rng.randint(0, 20))))
            micro.append(f"[:r {key} {f'[{seen}]' if ok else 'nil'}]")
    return f"[{' '.join(micro)}]"


def nested(rng: random.Random, *, ok: bool) -> str:
    columns = f'[{{:name "id", :type :int64}} {{:name "c{rng.randint(1, 9)}", :type :string}}]'
    schema = f"{{:columns {columns}, :version {rng.randint(1, 99)}}}"
    value = "{:x nil, :y [1 2 {:z true}]}" if ok else "{}"
    return f'{{:name "t{rng.randint(1, 50)}", :schema {schema}, :opts {value}}}'


def bank(rng: random.Random, *, ok: bool) -> str:
    if not ok:
        return "nil"
    return "{" + ", ".join(f"{account} {rng.randint(0, 100)}" for account in range(8)) + "}"


def sets(rng: random.Random, *, ok: bool) -> str:
    return f"#{{{' '.join(map(str, rng.sample(range(500), 40)))}}}" if ok else "nil"


def traces(rng: random.Random, *, ok: bool) -> str:
    if not ok or rng.random() < 0.8:
        return f'["k{rng.randint(0, 99)}" nil]'
    frames = '[java.net.Socket connect "Socket.java" 589] [clojure.lang.AFn run "AFn.java" 22]'
    return f'{{:via [{{:type java.io.IOException, :message "said \\"no\\""}}], :trace [{frames}]}}'


def nested_sets(rng: random.Random, *, ok: bool) -> str:
    return f"#{{{' '.join(f'[{n} #{{:a}}]' for n in rng.sample(range(500), 9))}}}" if ok else "nil"


SHAPES: dict[str, Callable[..., str]] = {
    "reads and writes of a register": reads,
    "list-append transactions": transactions,
    "maps in vectors in maps": nested,
    "maps with numbers as keys": bank,
    "sets of numbers": sets,
    "sets of vectors": nested_sets,
    "some Java exceptions": traces,
}


def tabbed(line: str) -> str:
    return line.replace(" ", "\t")


def spread(line: str) -> str:
    """Write each field of an op on a line of its own. The value is the last but one."""
    fields = re.split(r" (?=:(?:time|process|type :[io]|f|value) )", line[1:-2])
    return "{" + "\n ".join((*fields[:-2], *reversed(fields[-2:]))) + "}\n"


def commented(line: str) -> str:
    """Write a comment before the op."""
    return f'; it\'s "next" {{ }}\n{line}'


def recorded(line: str) -> str:
    return "#jepsen.history.Op" + line


def erred(line: str) -> str:
    """Add further keys to an op, such as a client's error and a map."""
    error = 'com.x.Error: ERR "no" such\\nkey at [a.B/c {:d 1}]'.replace('"', '\\"')
    more = f':error "{error}" :exception {{:via [{{:type a.b.Gone :at [a.B c "B.java" 1]}}]}}'
    return f"{{:node n1 :latency 1.5e-3 {line[1:-2]} {more}}}\n"


def tagged(line: str) -> str:
    return line.replace("{:", '{:at #inst "2026-01-01T00:00:00Z" :id #uuid "f81d4fae" :', 1)


def big(line: str) -> str:
    return re.sub(r"(:time \d+)", r"\1N", line)


def one_line(line: str) -> str:
    return line.replace("\n", " ")


WRITTEN: dict[str, Callable[[str], str]] = {
    "a tab for every blank": tabbed,
    "one field per line": spread,
    "comments between": commented,
    "records": recorded,
    "errors and other keys": erred,
    "tagged literals": tagged,
    "numbers that end in N": big,
    "everything on one line": one_line,
}
"""Functions that write an op differently from Clojure, by name."""


def lines(
    shape: Callable[..., str], *, commas: bool, written: Callable[[str], str] = str
) -> Iterator[str]:
    rng = random.Random(1)
    index = 0
    between = ", " if commas else " "
    while True:
        for kind in ("invoke", "ok"):
            fields = (f":index {index}", f":time {index * 1_000}", f":process {index // 2 % 10}")
            rest = (f":type :{kind}", ":f :txn", f":value {shape(rng, ok=kind == 'ok')}")
            yield written(f"{{{between.join((*fields, *rest))}}}\n")
            index += 1


def write(path: Path, ops: Iterator[str], megabytes: float) -> None:
    size = 0
    with path.open("w") as file:
        for op in ops:
            size += file.write(op)
            if size >= megabytes * 1e6:
                return


def rate(megabytes: float, work: Callable[[], object]) -> str:
    return f"{megabytes / best_s(work, RUNS):.1f}"


def drain(items: Iterator[object]) -> None:
    for _ in items:
        pass


READ_ALL = """
from pathlib import Path
from harness.formats.edn.jepsen import EdnOps
note_peak()
[None for op in EdnOps(Path(sys.argv[1])) if not op]
"""


def row(name: str, path: Path, written: Iterator[str], size: float) -> str:
    write(path, written, size)
    megabytes = path.stat().st_size / 1e6
    forms = rate(megabytes, lambda: drain(stream_pieces(path)))
    ops = rate(megabytes, lambda: drain(iter(EdnOps(path))))
    text = path.read_text()[: int(EXACT_MB * 1e6)]
    text = text[: max(text.rfind("}\n"), text.rfind("} {:index")) + 1]
    exact = rate(len(text) / 1e6, lambda: drain(parse_forms(text)))
    before, peak = peaks_mb(READ_ALL, str(path))
    return f"| {name} | {megabytes:.1f} | {forms} | {ops} | {exact} | 1 | {peak - before:.0f} |"


def main() -> None:
    """Print one row of speeds for each file."""
    size = float(sys.argv[1]) if len(sys.argv) > 1 else 20.0
    print(f"{machine()}; MB/s of CPU time\n")
    print("| values | MB | forms | ops | exact reader alone | cores | MB resident |")
    print("|---|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "history.edn"
        for name, shape in SHAPES.items():
            print(row(name, path, lines(shape, commas=True), size), flush=True)
            print(row("  without commas", path, lines(shape, commas=False), size), flush=True)
        for name, shape in (("list-append", transactions), ("maps", nested)):
            for way, written in WRITTEN.items():
                ops = lines(shape, commas=False, written=written)
                print(row(f"{name}: {way}", path, ops, size), flush=True)


if __name__ == "__main__":
    main()
