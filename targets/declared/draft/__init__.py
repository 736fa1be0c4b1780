"""Drafts of declarations: `harness init --compose` reads a Compose file and writes a TOML file."""

from targets.declared.draft.drafting import drafted

__all__ = ["drafted"]
