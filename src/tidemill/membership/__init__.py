"""The group as pure functions: wire formats, the leader's part of a rebalance, the member's state machine.

``leader.prepare`` and ``leader.complete`` make an assignment of subscriptions; ``member.step`` makes instructions of
events; ``member_subscription`` says what a member claims.
"""
