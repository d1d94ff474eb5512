"""Administration: topics, offsets, groups and their transactions."""
