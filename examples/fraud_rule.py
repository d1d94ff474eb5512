"""A fraud rule: more than three payments of one card, or more than 1,000 in all, within a minute raise an alert.

Shows the Processor API: a processor with a store of its own, a punctuator that forgets what is over, and records that
only some inputs cause.
"""

from tidemill import ProcessorContext, PunctuationType, Record, Serdes, Stores, StreamsBuilder

MINUTE_MS = 60_000
TEXT = Serdes.string()
PAYMENT = Serdes.json("amount double, shop string")
SPENT = Serdes.json("since bigint, payments bigint, amount double")
ALERT = Serdes.json("payments bigint, amount double, shop string")

config = {"application.id": "fraud-rule", "bootstrap.servers": "localhost:9092"}
builder = StreamsBuilder()
builder.add_state_store(Stores.key_value_store("spent", key=TEXT, value=SPENT))


class FraudRule:
    """What each card has spent since its first payment of the running minute."""

    def init(self, context: ProcessorContext) -> None:
        self.context = context
        self.spent = context.store("spent")
        context.schedule(MINUTE_MS, PunctuationType.STREAM_TIME, self.forget)

    def process(self, record: Record) -> None:
        found = self.spent.get(record.key)
        if found is None or record.timestamp - found["since"] >= MINUTE_MS:
            found = {"since": record.timestamp, "payments": 0, "amount": 0.0}
        spent = {**found, "payments": found["payments"] + 1, "amount": found["amount"] + record.value["amount"]}
        self.spent.put(record.key, spent)
        if spent["payments"] > 3 or spent["amount"] > 1_000:
            alert = {"payments": spent["payments"], "amount": spent["amount"], "shop": record.value["shop"]}
            self.context.forward(record.with_value(alert))

    def forget(self, now_ms: int) -> None:
        """Cards that have been quiet for a minute need no row."""
        for card, spent in list(self.spent.all()):
            if now_ms - spent["since"] >= MINUTE_MS:
                self.spent.delete(card)


payments = builder.stream("payments", key=TEXT, value=PAYMENT)
payments.process(FraudRule, "spent", key=TEXT, value=ALERT).to("alerts", key=TEXT, value=ALERT)
