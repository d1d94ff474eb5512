"""Orders and their payments: paid within an hour, or reported as unpaid.

Shows a left join of two streams in a window with grace: what has found no partner is sent once none can come any more.
"""

from tidemill import JoinWindows, Serdes, StreamJoined, StreamsBuilder

HOUR_MS = 3_600_000
TEXT = Serdes.string()
ORDER = Serdes.json("customer string, total double")
PAYMENT = Serdes.json("method string, amount double")
SETTLED = Serdes.json("customer string, total double, paid double, method string, state string")

config = {"application.id": "order-payments", "bootstrap.servers": "localhost:9092"}
builder = StreamsBuilder()


def settled(order: dict, payment: dict | None) -> dict:
    if payment is None:
        return {**order, "state": "unpaid"}
    state = "paid" if payment["amount"] >= order["total"] else "partly paid"
    return {**order, "paid": payment["amount"], "method": payment["method"], "state": state}


orders = builder.stream("orders", key=TEXT, value=ORDER)
payments = builder.stream("order-payments", key=TEXT, value=PAYMENT)
window = JoinWindows.of_time_difference(HOUR_MS, before=0, grace=5 * 60_000)  # a payment comes after its order
results = orders.left_join(payments, settled, window, joined=StreamJoined(key=TEXT, value=ORDER, other_value=PAYMENT))
results.to("settled-orders", key=TEXT, value=SETTLED)
