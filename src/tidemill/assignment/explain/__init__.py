"""Explanations of assignments: the rules that were applied, and their decisions."""
