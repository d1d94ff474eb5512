"""An instance of an application: its life from the checks at its start to its close, and what its threads share."""
