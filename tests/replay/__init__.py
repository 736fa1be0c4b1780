"""Tests of replays that stop."""
