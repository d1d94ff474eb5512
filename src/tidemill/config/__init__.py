"""The settings of an application: their names, what a value may be, and which belong together."""
