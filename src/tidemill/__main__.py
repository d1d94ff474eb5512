"""``python -m tidemill`` is the command `tidemill`."""

from tidemill.cli.main import main

main()
