"""Decimals of a schema: a number of so many digits, never rounded.

Decides that a number which its type has no room for is refused, digits behind the point included.
"""

from __future__ import annotations

from decimal import Context, Decimal

from tidemill.dsl.json_schema import DecimalType, Misfit

_CONTEXT = Context(prec=80, traps=[])
"""More digits than any type has, and no errors: what does not fit is found by comparing."""
_FARTHEST = 100
"""The power of ten up to which a number is looked at: one that says more (0e9999) would be made of as many digits."""


def fitted(value: Decimal, kind: DecimalType) -> Decimal:
    """``value`` with the type's digits behind the point; Misfit if it has more, or is too large."""
    if not value.is_finite():
        raise Misfit("is not finite: NaN and infinite numbers have no form in JSON; write null or text for them")
    exponent = value.as_tuple().exponent
    assert isinstance(exponent, int)
    if exponent > _FARTHEST or (value and value.adjusted() >= kind.precision - kind.scale):
        raise Misfit(f"is too large for its type {kind.ddl}")
    fit = value.quantize(Decimal((0, (1,), -kind.scale)), context=_CONTEXT) if exponent >= -10 * _FARTHEST else Decimal("NaN")
    if fit != value:
        raise Misfit(
            f"is {str(value)[:60]}, expected at most {kind.scale} digits behind the point, as its type {kind.ddl} has: round it,"
            " or give the schema more"
        )
    return fit if fit else abs(fit)  # without the sign of -0
