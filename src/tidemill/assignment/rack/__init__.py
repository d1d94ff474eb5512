"""Rack awareness (KIP-925): traffic between racks as a flow of least cost."""
