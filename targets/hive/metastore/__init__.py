"""A metastore, which is stateless and uses the database; a deployment has any number of them."""
