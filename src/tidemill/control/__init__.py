"""The channel between a stream thread and its Python workers: requests, reports and the questions of a commit."""
