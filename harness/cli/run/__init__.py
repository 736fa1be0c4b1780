"""`harness run` and `harness check-determinism`: run one case, from options to verdict."""
