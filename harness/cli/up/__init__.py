"""`harness up`, `down`, `break`, `heal` and `status`: long-lived clusters."""
