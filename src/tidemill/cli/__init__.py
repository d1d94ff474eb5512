"""The command `tidemill`: one module for each command or group of commands."""
