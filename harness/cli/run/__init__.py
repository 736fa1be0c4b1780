"""`harness run` and `harness check-determinism`: one case, from options to verdict."""
