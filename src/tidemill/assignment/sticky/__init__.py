"""StickyTaskAssignor and FallbackPriorTaskAssignor."""
