"""Opens a lake or a store as tables, for notebooks and jobs (`results.open`)."""
