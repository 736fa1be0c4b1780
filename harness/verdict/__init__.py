"""Turns a history into a verdict: judging, explanations, signatures of failures, and coverage."""
