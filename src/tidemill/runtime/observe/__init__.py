"""What an instance tells about itself: metrics, status, restores and rebalances."""
