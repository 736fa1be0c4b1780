"""`harness check`, `import` and `export`: judge and convert histories."""
