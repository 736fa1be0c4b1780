"""From a history to a verdict: judge it, explain it, sign it, and report its coverage."""
