"""The rows of a micro-batch: their Arrow schema, and the way from bytes to rows to Python values and back."""
