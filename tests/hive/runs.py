"""Whole simulated runs of the target, from words of the command line."""

import shlex

from harness.cli.parser import Parser
from harness.cli.run.case_options import case_from, parse_case_options
from harness.soak import SeedJob, run_seed

TARGET = ("--target", "hive", "--workload", "hms-ddl")


def case_of(words, seed):
    """The case, without any nemesis but those that are named."""
    arguments = [*TARGET, *shlex.split(words)]
    return case_from(parse_case_options(Parser(prog="exam"), arguments, nemesis="none"), seed)


def run(words, seed=1):
    """The result of one seed."""
    return run_seed(SeedJob(case=case_of(words, seed), store=None, name="exam", run_prefix=""))


def verdicts(result):
    """Checker -> verdict."""
    return {found.checker: found.verdict for found in result.checkers}
