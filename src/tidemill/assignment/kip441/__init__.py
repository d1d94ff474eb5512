"""HighAvailabilityTaskAssignor (KIP-441): warm-ups, movements, standbys, rack-aware tags."""
