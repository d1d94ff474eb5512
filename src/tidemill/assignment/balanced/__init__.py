"""The assignor ``balanced``: fewest moves to an even load, standbys that stay where they are."""
