"""The tablet server of the bundled target; `node.main` is its entry point."""
