"""`harness up`, `down`, `break`, `heal` and `status`: clusters that stay up."""
