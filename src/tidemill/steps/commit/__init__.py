"""What leaves a micro-batch in its transaction: output, changelogs, dead letters; and what restores a store."""
