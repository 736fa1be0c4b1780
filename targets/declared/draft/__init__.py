"""Drafts of declarations: `harness init --compose` turns a Compose file into a TOML file."""

from targets.declared.draft.drafting import drafted

__all__ = ["drafted"]
