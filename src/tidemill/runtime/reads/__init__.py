"""Interactive queries of an instance's stores, on this machine and on executors."""
