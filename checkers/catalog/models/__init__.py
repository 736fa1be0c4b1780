"""Sequential models of the catalog: the whole, one name, and views of both."""
