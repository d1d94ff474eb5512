"""``python -m tidemill`` is the command `tidemill`."""

from tidemill.cli.entry import main

main()
