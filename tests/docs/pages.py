"""The code blocks of documentation pages, and how tests run them.

A fenced block of the language `console` has commands (lines that begin with `$ `, continued by a
backslash at the end of a line) and their output. All blocks of one page run from top to bottom in
one bash, in a fresh folder. A comment on the line before a block changes that:

    <!-- run: needs=process,spark timeout=120 exit=1 small="1..2000=>1..2" after="harness down" -->
    <!-- run: no "needs a Kubernetes cluster" -->
    <!-- run: python -->

`needs`    marks of the suite; the test of the page has those of all its blocks
`timeout`  seconds, in place of 120
`exit`     exit code of all commands of the block, or one per command: `exit=0,1`
`small`    text to replace when tested; may be given more than once
`before`   a command that is run before the block
`after`    a command that cleans up after the page, also after a failure
`compare`  the output must have the lines of the block in their order; numbers may differ, and a
           line `...` stands for any lines
`file`     write the block, of any language, to this file in the folder of the page
`no`       the block is only parsed; the reason is mandatory
`python`   for blocks of the language `python`, which are otherwise not run
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 120
BLOCK = re.compile(
    r"(?:^<!-- run: (?P<directive>[^\n]*?) -->\n)?"
    r"^```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
WORD = re.compile(
    r'(?P<key>\w+)(?:=(?:"(?P<quoted>[^"]*)"|(?P<plain>[^\s"]+)))?|"(?P<reason>[^"]+)"'
)
KEYS = {"after", "before", "compare", "exit", "file", "needs", "no", "python", "small", "timeout"}
BETWEEN = "@@ block"


@dataclass(frozen=True)
class Block:
    """One fenced block, with the directive in the comment before it."""

    page: Path
    line: int
    language: str
    text: str
    directive: str

    @cached_property
    def words(self):
        """The directive's pairs (key, value); the reason given for `no` has the key `reason`."""
        found = []
        for match in WORD.finditer(self.directive):
            value = match["quoted"] if match["quoted"] is not None else match["plain"]
            found.append(("reason", match["reason"]) if match["reason"] else (match["key"], value))
        unknown = {key for key, _ in found} - KEYS - {"reason"}
        assert not unknown, f"{self.place}: unknown words {sorted(unknown)} in {self.directive!r}"
        return found

    def values(self, key):
        return [value for found, value in self.words if found == key]

    @property
    def place(self):
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def is_run(self):
        """Whether the commands are executed rather than only parsed."""
        if self.values("file"):
            return True
        if self.language == "python":
            return bool(self.values("python"))
        return self.language == "console" and not self.values("no")

    @property
    def needs(self):
        return {mark for value in self.values("needs") for mark in value.split(",")}

    @cached_property
    def commands(self):
        """The pairs (command, lines of its output) of a console block."""
        found, continued = [], False
        for line in self.text.splitlines():
            if continued:
                found[-1][0] += "\n" + line
            elif line.startswith("$ "):
                found.append([line[2:], []])
            elif found:
                found[-1][1].append(line)
            else:
                assert not line.strip(), f"{self.place}: output before the first command: {line!r}"
            continued = line.endswith("\\") and (continued or line.startswith("$ "))
        return [(command, output) for command, output in found]

    def script(self, number):
        """Return a bash script that runs the block and stops at the first wrong exit code."""
        lines = [f"echo '{BETWEEN} {number}'", *self.values("before")]
        for path in self.values("file"):
            lines += [f"mkdir -p $(dirname {path})", f"cat > {path} <<'@@'\n{self.text}@@"]
            return "\n".join(lines)
        if self.language == "python":
            return "\n".join([*lines, f"python - <<'@@'\n{self.text}@@", stop(0, self.place)])
        for old in (pair.split("=>")[0] for pair in self.values("small")):
            assert any(old in command for command, _ in self.commands), f"{self.place}: no {old!r}"
        codes = [int(code) for value in self.values("exit") for code in value.split(",")] or [0]
        if len(codes) == 1:
            codes *= len(self.commands)
        for (command, _), code in zip(self.commands, codes, strict=True):
            for pair in self.values("small"):
                old, new = pair.split("=>")
                command = command.replace(old, new)  # noqa: PLW2901
            lines += [command, stop(code, self.place)]
        return "\n".join(lines)


def stop(code, place):
    """Bash code that ends the script unless the last exit code is `code`."""
    message = f'echo "{place}: exit code $code, not {code}" >&2'
    return f"code=$?; [ $code -eq {code} ] || {{ {message}; exit 99; }}; (exit $code)"


def pages():
    listed = [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*/README.md")]
    return sorted(page for page in listed if "api" not in page.parts)


def name_of(page):
    return str(page.relative_to(ROOT))


def blocks_of(page):
    text = page.read_text(encoding="utf-8")
    return [
        Block(
            page,
            text.count("\n", 0, match.start()) + 1,
            match["language"],
            match["text"],
            match["directive"] or "",
        )
        for match in BLOCK.finditer(text)
    ]


def run_page(blocks, folder):
    """Run these blocks in one bash; return what each wrote to stdout."""
    script = "\n".join([*(block.script(number) for number, block in enumerate(blocks)), "exit 0"])
    try:
        written = bash(script, folder, sum(timeout_s(block) for block in blocks))
    finally:
        for block in blocks:
            for command in block.values("after"):
                bash(f"{command} || true", folder, TIMEOUT_S)
    return [part.split("\n", 1)[1] for part in written.split(BETWEEN)[1:]]


def timeout_s(block):
    return max([float(value) for value in block.values("timeout")], default=TIMEOUT_S)


def bash(script, folder, limit_s):
    """Run a script; at the time limit, end it and everything that it started."""
    variables = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        # a state folder of its own, because clusters that outlive the page belong to this test
        "XDG_STATE_HOME": str(folder / ".state"),
        "COLUMNS": "100",
    }
    with subprocess.Popen(
        ["bash", "-c", script], cwd=folder, env=variables, text=True, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        try:
            out, err = process.communicate(timeout=limit_s)
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    assert process.returncode == 0, f"{out[-3000:]}\n{err[-3000:]}"
    return out


def missing_lines(block, written):
    """Return the output lines of the page that the commands did not write, in the page's order."""
    rest = iter([masked(line) for line in written.splitlines()])
    shown = [line for _, output in block.commands for line in output]
    return [line for line in shown if masked(line) not in {"", "..."} and masked(line) not in rest]


def masked(line):
    """Return the line without its numbers, which change whenever the target changes."""
    return re.sub(r"\s+", " ", re.sub(r"\d+([.,]\d+)*", "N", line)).strip()
