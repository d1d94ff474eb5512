"""Reads of state while the application runs: of this instance's own copies, and of others' over HTTP."""
