"""The schema of a lake's tables, and the conversion of histories to rows and back."""
