"""`harness up`, `down`, `break`, `heal` and `status`: manage long-lived clusters."""
