"""Simulated runs of the target `hive`, configured by command-line options in a string."""

import shlex

from harness.cli.parser import Parser
from harness.cli.run.case_options import case_from, parse_case_options
from harness.soak import SeedJob, run_seed

TARGET = ("--target", "hive", "--workload", "hms-ddl")


def case_of(words, seed):
    arguments = [*TARGET, *shlex.split(words)]
    return case_from(parse_case_options(Parser(prog="exam"), arguments, nemesis="none"), seed)


def run(words, seed=1):
    return run_seed(SeedJob(case=case_of(words, seed), store=None, name="exam", run_prefix=""))


def verdicts(result):
    return {found.checker: found.verdict for found in result.checkers}
