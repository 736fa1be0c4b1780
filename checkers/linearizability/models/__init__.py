"""Sequential specifications, ready to use."""
