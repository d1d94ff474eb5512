"""The commit of a micro-batch: output, changelog records and dead letters in one transaction; and restoring from changelogs."""
