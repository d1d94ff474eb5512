"""A materialised view of two change streams: customers and their addresses, joined, and customers counted by town.

Shows change-data-capture topics read as tables (a null value deletes), a foreign-key join of two tables, and a table that
is grouped again: when a customer moves, his old town loses him.
"""

from tidemill import Serdes, StreamsBuilder, per_record

TEXT = Serdes.string()
CUSTOMER = Serdes.json("name string, address string")
ADDRESS = Serdes.json("street string, town string")
VIEW = Serdes.json("name string, street string, town string")

config = {"application.id": "customer-view", "bootstrap.servers": "localhost:9092"}
builder = StreamsBuilder()

customers = builder.table("customers", key=TEXT, value=CUSTOMER, store="customers")  # id -> customer, with his address' id
addresses = builder.table("addresses", key=TEXT, value=ADDRESS, store="addresses")


def with_address(customer: dict, address: dict | None) -> dict:
    known = address or {"street": None, "town": None}
    return {"name": customer["name"], **known}


view = customers.left_join(
    addresses, with_address, foreign_key=lambda customer: customer["address"], store="customer-view", value=VIEW
)
view.to_stream().to("customer-view", key=TEXT, value=VIEW)

by_town = view.group_by(per_record(lambda _, row: (row["town"], row["name"]), (TEXT, TEXT)), key=TEXT, value=TEXT)
by_town.count(store="customers-by-town").to_stream().to("customers-by-town", key=TEXT, value=Serdes.long())
