"""Parses the options of `harness soak`, and refuses impossible ones before any worker starts."""

from __future__ import annotations

import argparse
import errno
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final, get_args
from urllib.parse import unquote, urlsplit

from harness.cli.parser import Parser, add_place, add_verbose, check_counts
from harness.cli.project import known_failures
from harness.cli.run.artefacts import chosen_reporters
from harness.cli.run.case_options import parse_case_options
from harness.errors import UsageError
from harness.plan.random_case import ANY
from harness.search.guide import SWARM, Search
from harness.soak.result import KEEP_ALL, KEEP_FAILING
from harness.support.atomic_file import descriptor_of, refuse_folder

SIM: Final = "sim"
BY_SEED: Final = "seed"
BY_SIGNATURE: Final = "signature"
SEEDS_MAX: Final = 10_000_000
SEED_MAX: Final = 2**63 - 1
JOBS_MAX: Final = 512
ARTEFACTS_DEFAULT: Final = 10
SHRUNK_MAX: Final = 3
ARTEFACTS_MAX: Final = 1000
NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)
GITHUB_SUMMARY: Final = "GITHUB_STEP_SUMMARY"
EPILOG: Final = """examples:
  harness soak --seeds 1..200
  harness soak --env sim --seeds 1..200 --nemesis kill-leader --jobs 2
  harness soak --seeds 1..2000 --nemesis partition-leader,kill-leader --label v2 --junit out.xml
  harness soak --env process --seeds 1..20 --nemesis pause-leader
  harness soak --seeds 1..2000 --label v2 --lake s3://team/lake
  harness soak --seeds 1..100000 --spark-master spark://host:7077 --store /shared/store

After a kill or an interrupt, the same command continues where it stopped.

exit codes, the first that applies: 1 a seed is invalid, 130 interrupted, 255 a seed crashed,
2 a seed is unknown, 0 all are valid or permitted by the profile; 254 usage"""


def parse_soak(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the options; raises `UsageError` for invalid values and combinations."""
    parser = Parser(
        prog="harness soak",
        usage="harness soak --seeds A..B [OPTION ...]",
        description="Run many seeds of one case, each in a fresh world; resumable.",
        epilog=EPILOG,
    )
    _add_work(parser)
    add_place(parser)
    _add_keeping(parser)
    _add_outputs(parser)
    parser.show_first(
        *("-h", "--help-all", "--env", "--seeds", "--jobs", "--search", "--stop-after", "--shrink"),
        *(
            "--fresh",
            "--target",
            "--system",
            "--workload",
            "--nemesis",
            "--fault",
            "--bug",
            "--profile",
        ),
        *("--time-limit", "--case", "--store", "--name", "--label", "--keep", "--lake", "--junit"),
        "--json",
    )
    parsed = parse_case_options(parser, arguments, nemesis=ANY)
    if parsed.seed is not None:
        raise UsageError("a soak takes --seeds A..B, not --seed")
    parsed.first, parsed.last = parse_seeds(parsed.seeds)
    if parsed.stop_after < 0:
        raise UsageError(f"--stop-after is {parsed.stop_after}; it must be 0 (run all) or more")
    if not 0 <= parsed.artefacts <= ARTEFACTS_MAX:
        raise UsageError(f"--artefacts is {parsed.artefacts}; it must be in 0 .. {ARTEFACTS_MAX}")
    _check_search(parsed)
    _check_executor(parsed)
    _check_lake(parsed)
    _check_shrink(parsed)
    parsed.reporter_names = chosen_reporters(parsed.reporters)
    parsed.known_failures = known_failures(parsed.known, config=not parsed.no_config)
    _find_summary(parsed)
    _check_files(parsed)
    return parsed


def words_of_case(arguments: Sequence[str]) -> list[str]:
    """Return the arguments that `harness run` also takes, to replay a seed with them."""
    work = Parser(add_help=False)
    _add_work(work)
    add_place(work)
    _add_keeping(work)
    _add_outputs(work)
    return work.parse_known_args(list(arguments))[1]


def _check_search(parsed: argparse.Namespace) -> None:
    if parsed.search == SWARM:
        return
    if parsed.env != SIM:
        raise UsageError(
            f"--search {parsed.search} works only in the simulation, and --env is {parsed.env!r}: "
            f"use --env sim, or --search {SWARM}"
        )
    if parsed.spark_master is not None:
        raise UsageError(
            f"--search {parsed.search} works only on this machine: drop --spark-master, or use "
            f"--search {SWARM}"
        )


def _check_executor(parsed: argparse.Namespace) -> None:
    if parsed.spark_master is not None:
        if parsed.env != SIM:
            raise UsageError(
                f"--env is {parsed.env!r}; on Spark a soak runs in the simulation: use --env sim"
            )
        if parsed.jobs is not None:
            raise UsageError(
                "--jobs is for workers on this machine; with --spark-master the cluster decides, "
                "e.g. --spark-master local[2]"
            )
        return
    if parsed.env != SIM and parsed.jobs not in {None, 1}:
        raise UsageError(
            f"--jobs is {parsed.jobs}; --env {parsed.env} allows only one run at a time: drop "
            "--jobs, or use --env sim"
        )
    if parsed.jobs is None:
        parsed.jobs = (os.cpu_count() or 1) if parsed.env == SIM else 1
    check_counts(parsed, jobs=JOBS_MAX)


def _check_lake(parsed: argparse.Namespace) -> None:
    """Raise `UsageError` unless the lake and the store are separate folders."""
    if parsed.lake is None:
        return
    parts = urlsplit(parsed.lake) if "://" in parsed.lake else None
    if parts is not None and parts.scheme != "file":
        return
    folder = Path(parsed.lake if parts is None else unquote(parts.path))
    lake, store = folder.resolve(), parsed.store.resolve()
    if lake == store or store in lake.parents or lake in store.parents:
        raise UsageError(
            f"--lake {parsed.lake!r} and --store {str(parsed.store)!r} overlap: neither may be "
            "inside the other; keep them apart"
        )


def _check_shrink(parsed: argparse.Namespace) -> None:
    if not parsed.shrink:
        return
    for flag, unfit in (
        (f"--env {parsed.env}", parsed.env != SIM),
        ("--lake", parsed.lake is not None),
        ("--spark-master", parsed.spark_master is not None),
    ):
        if unfit:
            raise UsageError(
                f"--shrink needs failing runs of the simulation in a local store, but {flag} is "
                "given; drop one of the two, and use `harness shrink` later"
            )


def _find_summary(parsed: argparse.Namespace) -> None:
    if parsed.github_summary == "":
        summary = os.environ.get(GITHUB_SUMMARY)
        if not summary:
            raise UsageError(
                f"--github-summary has no FILE, and {GITHUB_SUMMARY}, which GitHub Actions sets, "
                "is not set; name a file"
            )
        parsed.github_summary = summary


def _check_files(parsed: argparse.Namespace) -> None:
    """Raise `UsageError` if an output file is a folder, or if two options have the same file."""
    taken: dict[Path, str] = {}
    for flag, path in _files_asked_for(parsed):
        refuse_folder(flag, path)
        if path.exists() and not path.is_file():
            continue  # not a regular file: several outputs may go to a device such as /dev/stdout
        other = taken.setdefault(path.resolve(), flag)
        if other != flag:
            raise UsageError(
                f"{other} and {flag} are both {str(path)!r}, so one would overwrite the other; "
                "name two files"
            )


def check_writable(parsed: argparse.Namespace) -> None:
    """Raise `UsageError` if an output file cannot be written, before hours of work are lost.

    A full disk is not an error here: it may have space when the soak ends.
    """
    for flag, path in _files_asked_for(parsed):
        try:
            _try_writing(path)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise UsageError(
                    f"{flag} is {str(path)!r}, which cannot be written: {error.strerror}; name a "
                    "file elsewhere"
                ) from error


def _try_writing(path: Path) -> None:
    """Raise `OSError` if `path` cannot be written; leave no file behind."""
    number = descriptor_of(path)
    if number is not None:
        os.fstat(number)
        return
    if not path.exists():
        path = path.resolve()  # test the target of a link, so that the link itself is not removed
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_fifo():
        return  # opening a pipe would block until it has a reader
    if path.exists():
        path.open("a").close()
    else:
        path.touch()
        path.unlink()


def _files_asked_for(parsed: argparse.Namespace) -> list[tuple[str, Path]]:
    paths = ((name, getattr(parsed, name)) for name in ("junit", "summary_json", "github_summary"))
    return [(f"--{name.replace('_', '-')}", Path(path)) for name, path in paths if path is not None]


def parse_seeds(text: str) -> tuple[int, int]:
    """Parse `A..B`, or a single `A`. Returns the first and last seed; raises `UsageError`."""
    match = re.fullmatch(r"([0-9]+)(?:\.\.([0-9]+))?", text)
    if match is None or len(text) > 50:
        raise UsageError(f"--seeds is {text!r}; write a range such as 1..200, both ends included")
    first = int(match[1])
    last = int(match[2]) if match[2] else first
    if last < first:
        raise UsageError(f"--seeds is {text!r}; the second number must not be below the first")
    if last > SEED_MAX:
        raise UsageError(f"--seeds is {text!r}; a seed is at most {SEED_MAX}")
    if last - first >= SEEDS_MAX:
        raise UsageError(
            f"--seeds is {text!r}, a range of {last - first + 1} seeds; a soak takes at most "
            f"{SEEDS_MAX}: run the range in parts"
        )
    return first, last


def _add_work(parser: Parser) -> None:
    parser.add_argument(
        "--env",
        default=SIM,
        metavar="ENV",
        help="sim, process, docker or auto; outside sim one run at a time (default: sim)",
    )
    parser.add_argument(
        "--seeds", required=True, metavar="A..B", help="the seeds to run, both ends included"
    )
    parser.add_argument(
        "--jobs",
        type=int,
        metavar="N",
        help=f"worker processes (default: one per core, here {os.cpu_count() or 1})",
    )
    parser.add_argument(
        "--spark-master",
        metavar="URL",
        help="run the seeds on Spark: local[N], spark://host:port or sc://host:port; its executors "
        "must have this package installed and see the store",
    )
    parser.add_argument(
        "--search",
        choices=get_args(Search),
        default=SWARM,
        help="how cases are made: uniform draws everything at once, swarm draws a few kinds of "
        "faults per seed, guided varies cases that reached new states (default: %(default)s)",
    )
    parser.add_argument(
        "--stop-after",
        type=int,
        default=0,
        metavar="N",
        help="stop after N invalid seeds; 0 runs all (default: 0)",
    )
    parser.add_argument(
        "--shrink",
        action="store_true",
        help=f"shrink the first failing run of each signature, at most {SHRUNK_MAX} runs "
        "(see `harness shrink`)",
    )
    parser.add_argument(
        "--freeze",
        action="store_true",
        help="in real environments: freeze the first run with a certain violation, as `harness run "
        "--freeze` does, and stop",
    )
    parser.add_argument(
        "--fresh", action="store_true", help="discard the progress of an earlier soak of this case"
    )
    parser.add_argument("--seed", type=int, help=argparse.SUPPRESS)


def _add_keeping(parser: Parser) -> None:
    parser.add_argument(
        "--label", metavar="L", help="name that distinguishes soaks in reports, such as a version"
    )
    parser.add_argument(
        "--keep",
        default=KEEP_ALL,
        metavar="WHICH",
        help=f"which runs stay in the store: {KEEP_ALL}, or only {KEEP_FAILING} ones (default: "
        "%(default)s; in real environments all stay)",
    )
    parser.add_argument(
        "--lake",
        metavar="URI",
        help="append the runs to the lake in this folder or at s3://BUCKET/PREFIX, which is "
        "created if it is missing; only the soak's journal stays in the store",
    )


def _add_outputs(parser: Parser) -> None:
    group = parser.add_argument_group("output")
    group.add_argument(
        "--reporters",
        default="default",
        metavar="LIST",
        help="reporters to run on failing runs, as in `harness run` (default: %(default)s)",
    )
    group.add_argument(
        "--artefacts",
        type=int,
        default=ARTEFACTS_DEFAULT,
        metavar="N",
        help="run the reporters on the first N failing runs (default: %(default)s)",
    )
    group.add_argument("--junit", type=Path, metavar="FILE", help="write JUnit XML")
    group.add_argument(
        "--junit-group",
        choices=(BY_SEED, BY_SIGNATURE),
        default=BY_SEED,
        help="make one test case of the JUnit file per seed or signature (default: %(default)s)",
    )
    group.add_argument(
        "--summary-json", type=Path, metavar="FILE", help="write what --json prints to a file"
    )
    group.add_argument(
        "--github-summary",
        nargs="?",
        const="",
        metavar="FILE",
        help=f"add a step summary to FILE (default: ${GITHUB_SUMMARY}) and annotate failing seeds",
    )
    group.add_argument(
        "--known",
        type=Path,
        metavar="FILE",
        help="failures that have a ticket, as [[known]] tables (default: in harness.toml)",
    )
    group.add_argument("--json", action="store_true", help="print one JSON object, no text")
    group.add_argument("--quiet", action="store_true", help="no progress")
    add_verbose(group)
