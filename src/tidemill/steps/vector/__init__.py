"""Stateful operators over whole columns; what they must equal, record by record, is in `operators`."""
