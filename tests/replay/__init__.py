"""Tests of replays that stop at a chosen moment."""
