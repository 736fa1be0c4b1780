"""Every command in README and docs works as written; `pages.py` explains the convention."""

import contextlib
import functools
import io
import re

import pytest

from harness.cli import main
from harness.cli.parser import known_verbs
from harness.registry import plugin_names
from harness.store import load_run
from results.run.page import read_results
from tests.docs.pages import blocks_of, missing_lines, name_of, pages, run_page

ONLY_PARSED_MAX = 14
CODE_SPAN = re.compile(r"(?<!`)`(?:\$ )?(harness [^`\n]+(?:\n[^`\n]+)?)`(?!`)")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")
GRAMMAR = re.compile(r"[\w.-]+(\|[\w.-]+)*")
TAKES_WORKLOADS = {"run", "soak", "check-determinism"}


def runnable():
    """Return each page with the blocks to run, as parameters with marks."""
    for page in pages():
        blocks = [block for block in blocks_of(page) if block.is_run]
        if blocks:
            needs = sorted({mark for block in blocks for mark in block.needs})
            marks = [pytest.mark.slow(s=60), *(getattr(pytest.mark, name) for name in needs)]
            yield pytest.param(blocks, id=name_of(page), marks=marks)


@pytest.mark.parametrize("blocks", list(runnable()))
def test_commands_of_a_page_work(blocks, tmp_path):
    written = run_page(blocks, tmp_path)
    for block, text in zip(blocks, written, strict=True):
        if block.values("compare"):
            assert missing_lines(block, text) == [], f"{block.place} printed:\n{text}"
    check_operation_numbers(tmp_path)


def check_operation_numbers(folder):
    """Check that all sentences and lists refer to an operation by the index of its invocation."""
    for results in folder.glob("store/*/2*/results.json"):
        stored = load_run(results.parent)
        calls = {pair.invoke.index for pair in stored.history.pairs}
        answers = {op.index for op in stored.history if op.is_client} - calls
        for result in read_results(results.parent).checkers:
            text = " ".join((result.reason, *result.explanation))
            assert {int(number) for number in re.findall(r"\bop (\d+)\b", text)} <= calls
            assert answers.isdisjoint(result.operations)


def test_few_blocks_are_only_parsed():
    parsed = [block for page in pages() for block in blocks_of(page) if block.values("no")]
    assert all(block.values("reason") for block in parsed), "say why a block is not run"
    assert len(parsed) <= ONLY_PARSED_MAX, [block.place for block in parsed]


def commands_of(page):
    """Return every `harness ...` on a page, from blocks and from code spans in sentences."""
    for block in blocks_of(page):
        if block.language == "console":
            for command, _ in block.commands:
                for part in re.split(r"[|;&]+ ", command):
                    if part.strip().startswith("harness "):
                        yield part.strip().replace("\\\n", " ")
    for match in CODE_SPAN.finditer(page.read_text(encoding="utf-8")):
        yield " ".join(match[1].replace("\\|", "|").split())


@functools.cache
def help_of(*words):
    """Return the output of `harness WORDS --help` and `--help-all`; empty if unknown."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(io.StringIO()):
        for flag in ("--help", "--help-all"):
            main([*words, flag])
    return said.getvalue()


@functools.cache
def options_of(verb):
    texts = [help_of(verb)]
    if verb in TAKES_WORKLOADS:
        texts += [help_of(verb, "--workload", name) for name in plugin_names("workloads")]
        texts += [help_of(verb, "--target", name) for name in plugin_names("targets")]
    return {option for text in texts for option in OPTION.findall(text)}


def faults_of(command):
    """Return what is wrong with a command on a page."""
    words = [word for word in command.split()[1:] if not word.startswith("-")]
    verbs = command.split()[1]
    if verbs.startswith("-") or verbs in {"VERB", "..."}:
        return []
    for verb in verbs.strip("'\",").split("|"):
        if verb not in known_verbs() and verb != "help":
            return [f"no verb {verb!r}"]
    verb = verbs.split("|")[0]
    known = set(options_of(verb))
    # a verb may have one or two parts: `harness lake export`, `harness kudu table scan`
    for depth in (1, 2):
        deeper = words[: depth + 1]
        if verb in {"kudu", "lake"} and all(map(GRAMMAR.fullmatch, deeper)):
            for choice in deeper[-1].split("|"):
                known.update(OPTION.findall(help_of(*deeper[:-1], choice)))
    unknown = [option for option in OPTION.findall(command) if option not in known]
    return [f"no option {option} of `harness {verb}`" for option in unknown]


@pytest.mark.slow
def test_commands_name_verbs_and_options_that_exist():
    faults = [
        f"{name_of(page)}: `{command}`: {fault}"
        for page in pages()
        for command in commands_of(page)
        for fault in faults_of(command)
    ]
    assert faults == []


def test_a_wrong_command_is_noticed():
    assert faults_of("harness rum --env sim") == ["no verb 'rum'"]
    assert faults_of("harness serve STORE --prot 1") == ["no option --prot of `harness serve`"]
    assert faults_of("harness lake export LAKE --labl x") == ["no option --labl of `harness lake`"]
    assert faults_of("harness soak --workload hms-events --event-ttl-ms 5") == []
