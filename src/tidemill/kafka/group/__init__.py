"""The protocol of consumer groups: a member, its coordinator, the leader's part."""
