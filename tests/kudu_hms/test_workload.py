"""The workload that changes tables through Kudu and Hive."""

import pytest

from harness.case import Case
from harness.cli.parser import Parser
from harness.cli.run.case_options import case_from, parse_case_options
from harness.environments.sim import SimEnvironment
from harness.errors import UsageError
from harness.plan.planning import plan_case
from harness.plugins.options import with_defaults
from harness.vocabularies import ddl, kudu_hms
from tests.support.drafts import take
from workloads.kudu_hms import KINDS, READS, KuduHmsWorkload


def case(hms=True, **options):
    workload = KuduHmsWorkload()
    given = with_defaults("workload", workload.name, workload.options, options)
    target = {"hms": hms, "tservers": 3}
    return Case(seed=1, workload=workload.name, workload_options=given, target_options=target)


def drafts(count=2000, **options):
    return take(KuduHmsWorkload().generator(case(**options)), count)


def test_same_seed_same_operations():
    assert drafts(300) == drafts(300)


def test_every_kind_of_the_mix_appears_with_nonces_of_their_own():
    drafted = drafts(readers=0, mix=",".join(f"{kind}=1" for kind in KINDS))
    assert {draft.f for draft in drafted} == {*kudu_hms.BY_NAME}
    nonces = [draft.value["nonce"] for draft in drafted if "nonce" in draft.value]
    assert len(nonces) == len(set(nonces))
    for draft in drafted:
        call_of = kudu_hms.call_of if draft.f.startswith("hive-") else ddl.call_of
        assert call_of(draft.f, draft.value).asked() == draft.value


def test_names_are_few_and_lie_in_two_databases():
    names = {d.value["name"] for d in drafts(names=3, readers=0) if "name" in d.value}
    assert names == {"db1.t0", "db2.t1", "db1.t2"}


def test_readers_only_read():
    assert {draft.f for draft in drafts(readers=10)} < READS


def test_it_needs_metastores_and_they_the_profile_strict():
    with pytest.raises(UsageError):
        KuduHmsWorkload().generator(case(hms=False))

    def planned(*words):
        given = parse_case_options(Parser(prog="t"), ["--workload", "kudu-hms", *words])
        return plan_case(case_from(given, 1), SimEnvironment())

    assert {"hms1", "hms2", "db"} <= {spec.name for spec in planned("--hms").nodes}
    with pytest.raises(UsageError):
        planned("--hms", "--profile", "modern")
