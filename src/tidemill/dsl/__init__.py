"""The language of programs: builder, streams, tables, groups, serdes. Values only; building has no side effect."""
