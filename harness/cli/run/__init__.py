"""The verbs `harness run` and `harness check-determinism`, which run one case."""
