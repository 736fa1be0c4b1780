"""The tables of a lake: their schema, and the conversion of histories to rows and back."""
