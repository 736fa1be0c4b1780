"""The verbs for long-lived clusters: `harness up`, `down`, `break`, `heal` and `status`."""
