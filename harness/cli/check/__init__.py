"""`harness check`, `import` and `export`: histories, judged and converted."""
