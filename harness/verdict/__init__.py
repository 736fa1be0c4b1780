"""From a history to a verdict: judge it, explain it, sign it, and say what was covered."""
