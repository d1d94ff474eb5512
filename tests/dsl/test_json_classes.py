"""Dataclasses, TypedDicts and Pydantic models as schemas of JSON: which type each annotation is, and what instances are read."""

from __future__ import annotations

import pickle
from dataclasses import InitVar, dataclass, field
from datetime import date, datetime, timezone
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, ClassVar, Literal, NewType, TypedDict
from uuid import UUID

import pytest
from pydantic import BaseModel, Field, NaiveDatetime, field_validator
from typing_extensions import NotRequired

from tidemill import Serdes
from tidemill.errors import SerdeError, TopologyError
from tidemill.steps.rows.codecs_wire import for_the_jvm, from_the_jvm


class Color(Enum):
    RED = "red"


Sku = NewType("Sku", str)


@dataclass
class Item:
    sku: Sku
    pieces: int = 1


@dataclass(frozen=True)
class Order:
    id: UUID
    at: datetime
    amount: Annotated[Decimal, "decimal(12,2)"]
    items: list[Item]
    by_name: dict[str, Item | None] = field(default_factory=dict)
    pair: tuple[int, ...] = (1, 2)
    color: Color = Color.RED
    kind: Literal["sale", "return"] = "sale"
    day: date | None = None
    small: Annotated[int, "smallint"] = 0
    local: Annotated[datetime, "timestamp_ntz"] | None = None
    known: ClassVar[int] = 3


class Flat(TypedDict):
    user: str
    score: float | None
    note: NotRequired[str]


class Partial(TypedDict, total=False):
    user: str


class Line(BaseModel):
    sku: str = Field(min_length=2)


class Invoice(BaseModel):
    model_config = {"extra": "forbid"}

    number: int = Field(alias="invoiceNumber", gt=0)
    total: Decimal = Field(max_digits=10, decimal_places=3)
    lines: list[Line] = []
    local: NaiveDatetime | None = None
    payer: Item | None = None
    name: str = "nobody"

    @field_validator("name")
    @classmethod
    def _lower(cls, value: str) -> str:
        return value.lower()


ID = "12345678-1234-1234-1234-123456789012"


@pytest.mark.parametrize(("cls", "sql_type"), [
    (Order, "struct<id:string,at:timestamp,amount:decimal(12,2),items:array<struct<sku:string,pieces:bigint>>,"
            "by_name:map<string,struct<sku:string,pieces:bigint>>,pair:array<bigint>,color:string,kind:string,day:date,"
            "small:smallint,local:timestamp_ntz>"),
    (Flat, "struct<user:string,score:double,note:string>"),
    (Invoice, "struct<invoiceNumber:bigint,total:decimal(10,3),lines:array<struct<sku:string>>,local:timestamp_ntz,"
              "payer:struct<sku:string,pieces:bigint>,name:string>"),
])  # fmt: skip
def test_each_annotation_is_a_type_of_spark(cls: type, sql_type: str) -> None:
    assert Serdes.json(cls).sql_type == sql_type


class Size(Enum):
    SMALL = "small"

    @classmethod
    def _missing_(cls, value: object) -> Size | None:
        return cls.SMALL if str(value).lower() == "small" else None


@dataclass
class Shirt:
    color: Color
    sizes: list[Size]
    level: Literal[1, 2] | None = None


@pytest.mark.parametrize("given", [Shirt(Color.RED, [Size.SMALL], 2), {"color": "red", "sizes": ["SMALL"]}])
def test_values_of_an_enum_and_a_literal_are_written(given: Any) -> None:
    """An Enum that makes members of other texts takes any."""
    serde = Serdes.json(Shirt)
    assert serde.deserialize(serde.serialize(given)) == Shirt(Color.RED, [Size.SMALL], getattr(given, "level", None))


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (Shirt("green", []), r"value\.color is 'green', expected one of 'red'"),  # type: ignore[arg-type]
        ({"color": "red", "sizes": [], "level": 3}, r"value\.level is 3, expected one of 1, 2"),
        (Shirt(Color.RED, [], True), r"value\.level is of type bool, expected bigint"),
    ],
)
def test_what_an_enum_or_a_literal_does_not_take_is_not_written_either(given: Any, problem: str) -> None:
    """No reader with this class could read it."""
    with pytest.raises(SerdeError, match=problem):
        Serdes.json(Shirt).serialize(given)


ORDER = Order(
    UUID(ID), datetime(2026, 1, 31, 12, tzinfo=timezone.utc), Decimal("12.50"), [Item(Sku("a")), Item(Sku("b"), 3)],
    {"x": Item(Sku("c")), "y": None}, (), day=date(2026, 2, 1), small=7, local=datetime(2026, 1, 1),
)  # fmt: skip


def test_an_instance_comes_back_as_it_went_also_by_way_of_the_jvm_and_pickled() -> None:
    serde: Any = Serdes.json(Order)
    written = serde.serialize(ORDER)
    assert serde.deserialize(written) == ORDER
    assert from_the_jvm(serde, for_the_jvm(serde, written)) == written
    travelled = pickle.loads(pickle.dumps(serde))
    assert travelled == serde
    assert travelled.deserialize(written) == ORDER


def test_a_missing_field_and_a_null_one_have_the_default() -> None:
    items = '[{"sku":"a","pieces":null}]'
    text = f'{{"id":"{ID}","at":"2026-01-31T12:00:00Z","amount":"1.5","items":{items},"color":null}}'
    found = Serdes.json(Order).deserialize(text.encode())
    assert found == Order(UUID(ID), datetime(2026, 1, 31, 12, tzinfo=timezone.utc), Decimal("1.50"), [Item(Sku("a"))])
    assert type(found.items[0]) is Item


def test_functions_of_columns_are_given_the_defaults_too() -> None:
    serde: Any = Serdes.json(Item)
    assert for_the_jvm(serde, b'{"sku":"a"}') == b'{"sku":"a","pieces":1}'


def test_a_typed_dict_is_read_as_a_dict() -> None:
    serde: Any = Serdes.json(Flat)
    assert serde.deserialize(b'{"user":"ada","more":1}') == {"user": "ada", "score": None, "note": None}
    assert Serdes.json(Partial).deserialize(b"{}") == {"user": None}
    with pytest.raises(SerdeError, match=r"value.user is missing or null, expected a value"):
        serde.deserialize(b'{"score":1}')
    with pytest.raises(SerdeError, match=r"value.user is missing or null, expected a value"):
        serde.serialize({"score": 1.0})


def test_a_model_validates_and_what_it_makes_of_a_value_is_written() -> None:
    serde: Any = Serdes.json(Invoice)
    found = serde.deserialize(b'{"invoiceNumber":7,"total":1.5,"lines":[{"sku":"ab"}],"payer":{"sku":"p"},"name":"ADA"}')
    assert found == Invoice(invoiceNumber=7, total=Decimal("1.500"), lines=[Line(sku="ab")], payer=Item(Sku("p")), name="ada")
    expected = b'{"invoiceNumber":7,"total":1.500,"lines":[{"sku":"ab"}],"payer":{"sku":"p","pieces":1},"name":"ada"}'
    assert serde.serialize(found) == expected


@pytest.mark.parametrize(("text", "problem"), [
    (b'{"invoiceNumber":0,"total":1}', "value.invoiceNumber is '0', refused by Invoice: Input should be greater than 0"),
    (b'{"invoiceNumber":1,"total":1,"lines":[{"sku":"ab"},{"sku":"x"}]}',
     r"value.lines\[1\].sku is 'x', refused by Line: String should have at least 2"),
    (b'{"invoiceNumber":"1","total":1}', "value.invoiceNumber is of type str, expected bigint"),
    (b'{"invoiceNumber":1,"total":1,"other":2}', "value has the member 'other', which its type lacks"),
    (b'{"total":1}', "value.invoiceNumber is missing or null"),
    (b'{"invoiceNumber":1,"total":1.23456}', "value.total is 1.23456, expected at most 3 digits behind the point"),
])  # fmt: skip
def test_what_a_model_refuses_is_refused_with_its_place(text: bytes, problem: str) -> None:
    with pytest.raises(SerdeError, match=problem):
        Serdes.json(Invoice).deserialize(text)


@pytest.mark.parametrize(("member", "problem"), [
    ('"id":"x"', "value.id is 'x': badly formed hexadecimal UUID string"),
    ('"color":"blue"', "value.color is 'blue': 'blue' is not a valid Color"),
    ('"kind":"gift"', "value.kind is 'gift': expected one of 'sale', 'return'"),
    ('"small":40000', "value.small is 40000, which does not fit in its type smallint"),
    ('"by_name":{"k":{}}', r"value.by_name\['k'\].sku is missing or null"),
])  # fmt: skip
def test_what_a_field_of_a_dataclass_refuses(member: str, problem: str) -> None:
    whole = {"id": f'"id":"{ID}"', "at": '"at":"2026-01-31T12:00:00Z"', "amount": '"amount":1', "items": '"items":[]'}
    whole[member.split('"')[1]] = member
    with pytest.raises(SerdeError, match=problem):
        Serdes.json(Order).deserialize(f"{{{','.join(whole.values())}}}".encode())


def test_what_a_class_itself_raises_is_a_refusal() -> None:
    @dataclass
    class Positive:
        number: int

        def __post_init__(self) -> None:
            if self.number < 0:
                raise ValueError("below zero")

    Positive.__annotations__["number"] = int  # as where annotations are not text
    with pytest.raises(SerdeError, match="value is refused by Positive: ValueError: below zero"):
        Serdes.json(Positive).deserialize(b'{"number":-1}')


@dataclass
class Strange:
    what: complex


@dataclass
class Either:
    what: int | str


@dataclass
class Nullable:
    what: str | None = "x"


@dataclass
class Endless:
    inner: Endless | None = None


@dataclass
class WrongNote:
    what: Annotated[float, "decimal(3,1)"]


@dataclass
class Late:
    what: int = field(init=False)


class TwoNames(BaseModel):
    what: int = Field(validation_alias="a", serialization_alias="b")


@pytest.mark.parametrize(("cls", "problem"), [
    (Strange, "Strange.what is annotated with complex, expected one of str, bool, int"),
    (Either, r"Either.what is annotated with int \| str, expected one of"),
    (Nullable, "Nullable.what takes None and has the default 'x'"),
    (Endless, "Endless contains itself"),
    (WrongNote, r"WrongNote.what is annotated with the type decimal\(3,1\), whose values are of another Python type"),
    (Late, "Late.what is no argument of the class"),
    (TwoNames, "TwoNames.what is read by another name than it is written by"),
    (dict, r"expected DDL text such as .*, a dataclass, a TypedDict or a Pydantic model, got <class 'dict'>"),
    (list[str], r"got list\[str\]; a list or a map is a field of one of these"),
])  # fmt: skip
def test_a_class_that_json_has_no_form_for_is_refused(cls: type, problem: str) -> None:
    with pytest.raises(TopologyError, match=problem):
        Serdes.json(cls)


def test_an_annotation_that_names_nothing_at_the_top_of_its_module_is_said() -> None:
    class Inner(BaseModel):
        a: int

    @dataclass
    class Outer:
        inner: Inner

    with pytest.raises(TopologyError, match=r"an annotation of Outer can't be resolved .*: define what it names at the top"):
        Serdes.json(Outer)


def test_an_annotation_that_fails_in_another_way_is_said_too() -> None:
    @dataclass
    class Hides:
        list: list[int] | None = None  # type: ignore[valid-type]

    with pytest.raises(TopologyError, match=r"an annotation of Hides can't be resolved \(TypeError: .*\); expected one of str"):
        Serdes.json(Hides)


def test_a_class_that_wants_more_than_its_fields_is_refused() -> None:
    @dataclass
    class More:
        a: int
        b: InitVar[int]

    @dataclass(init=False)
    class Own:
        a: int

        def __init__(self, text: str) -> None:
            self.a = int(text)

    @dataclass
    class Defaulted:
        a: int
        b: InitVar[int] = 3

        def __post_init__(self, b: int) -> None:
            self.a += b

    with pytest.raises(TopologyError, match="More wants the argument b, which is no field: JSON has nothing for it"):
        Serdes.json(More)
    with pytest.raises(TopologyError, match="Own wants the argument text, which is no field"):
        Serdes.json(Own)
    assert Serdes.json(Defaulted).deserialize(b'{"a": 1}') == Defaulted(1)
