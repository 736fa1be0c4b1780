"""A metastore: stateless, over sessions with the database; any number stand beside each other."""
