"""The nodes of a topology that run record by record, through `operators`."""
