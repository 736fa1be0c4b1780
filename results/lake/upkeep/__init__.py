"""What a lake needs now and then: merge small files, remove dead ones, check that all is sound."""
