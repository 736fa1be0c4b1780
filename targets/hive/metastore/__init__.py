"""A metastore: stateless, over sessions with the database; a deployment has any number of them."""
