"""Methods and functions of Python, and of Java's texts, with their counterparts in PySpark: tables, as templates of code.

``{0}`` of a method is the Column that it is called on, then come its arguments; ``{0}`` of a function is its first argument.
"""

from __future__ import annotations

import ast

_SPACES = r"F.lit(' \t\r\n')"
"""What Python's ``strip`` takes off. Spark's own takes blanks only."""
METHODS: dict[tuple[str, int], str] = {
    # text
    ("lower", 0): "F.lower({0})", ("casefold", 0): "F.lower({0})", ("upper", 0): "F.upper({0})",
    ("title", 0): "F.initcap({0})",
    ("capitalize", 0): "F.concat(F.upper(F.left({0}, F.lit(1))), F.lower(F.substr({0}, F.lit(2))))",
    ("strip", 0): f"F.trim({{0}}, {_SPACES})", ("lstrip", 0): f"F.ltrim({{0}}, {_SPACES})",
    ("rstrip", 0): f"F.rtrim({{0}}, {_SPACES})",
    ("strip", 1): "F.trim({0}, F.lit({1}))", ("lstrip", 1): "F.ltrim({0}, F.lit({1}))", ("rstrip", 1): "F.rtrim({0}, F.lit({1}))",
    ("split", 0): "F.regexp_extract_all({0}, F.lit('\\\\S+'), F.lit(0))",
    ("splitlines", 0): r"F.split(F.regexp_replace({0}, '\\r?\\n\\z', ''), '\\r?\\n')",
    ("replace", 2): "F.replace({0}, F.lit({1}), F.lit({2}))", ("find", 1): "F.instr({0}, {1}) - 1",
    ("index", 1): "F.instr({0}, {1}) - 1",
    # a text longer than the width is cut by Spark, not by Python
    ("zfill", 1): "F.lpad({0}, F.greatest(F.length({0}), F.lit({1})), '0')",
    ("ljust", 1): "F.rpad({0}, F.greatest(F.length({0}), F.lit({1})), ' ')",
    ("rjust", 1): "F.lpad({0}, F.greatest(F.length({0}), F.lit({1})), ' ')",
    ("isdigit", 0): "{0}.rlike('^[0-9]+$')", ("isnumeric", 0): "{0}.rlike('^[0-9]+$')",
    ("isdecimal", 0): "{0}.rlike('^[0-9]+$')", ("isalpha", 0): "{0}.rlike('^[A-Za-z]+$')",
    ("isalnum", 0): "{0}.rlike('^[A-Za-z0-9]+$')", ("isspace", 0): "{0}.rlike('^[ \\\\t\\\\n]+$')",
    ("encode", 0): "F.encode({0}, 'UTF-8')", ("decode", 0): "F.decode({0}, 'UTF-8')",
    ("hex", 0): "F.lower(F.hex({0}))", ("digest", 0): "F.unhex({0})",
    # mappings and lists
    ("get", 1): "{0}[{1}]", ("get", 2): "F.coalesce({0}[{1}], F.lit({2}))", ("keys", 0): "F.map_keys({0})",
    ("values", 0): "F.map_values({0})", ("items", 0): "F.map_entries({0})", ("append", 1): "F.array_append({0}, F.lit({1}))",
    ("extend", 1): "F.concat({0}, {1})", ("sort", 0): "F.array_sort({0})", ("reverse", 0): "F.reverse({0})", ("copy", 0): "{0}",
    ("union", 1): "F.array_union({0}, {1})", ("intersection", 1): "F.array_intersect({0}, {1})",
    # times
    ("date", 0): "F.to_date({0})", ("timestamp", 0): "F.unix_micros({0}) / 1e6", ("weekday", 0): "F.weekday({0})",
    # numpy's and pandas' habits
    ("round", 0): "F.bround({0})", ("round", 1): "F.bround({0}, {1})", ("fillna", 1): "F.coalesce({0}, F.lit({1}))",
    ("isna", 0): "{0}.isNull()", ("notna", 0): "{0}.isNotNull()", ("isnull", 0): "{0}.isNull()",
    # Java's text
    ("toLowerCase", 0): "F.lower({0})", ("toUpperCase", 0): "F.upper({0})", ("trim", 0): "F.trim({0})",
    ("length", 0): "F.length({0})", ("isEmpty", 0): "({0} == '')", ("isBlank", 0): "(F.trim({0}) == '')",
    ("equals", 1): "({0} == {1})", ("equalsIgnoreCase", 1): "(F.lower({0}) == F.lower(F.lit({1})))",
    ("startsWith", 1): "{0}.startswith({1})", ("endsWith", 1): "{0}.endswith({1})", ("indexOf", 1): "F.instr({0}, {1}) - 1",
    ("charAt", 1): "F.substr({0}, F.lit({1} + 1), F.lit(1))", ("substring", 1): "F.substr({0}, F.lit({1} + 1))",
    ("substring", 2): "F.substr({0}, F.lit({1} + 1), F.lit({2} - {1}))", ("replaceAll", 2): "F.regexp_replace({0}, {1}, {2})",
}  # fmt: skip
"""Counterparts of methods, by name and number of arguments."""

FUNCTIONS: dict[tuple[str, int], str] = {
    ("len", 1): "F.length({0})", ("int", 1): "{0}.cast('bigint')", ("float", 1): "{0}.cast('double')",
    ("str", 1): "{0}.cast('string')", ("bool", 1): "{0}.cast('boolean')",
    ("bytes", 1): "{0}.cast('binary')", ("abs", 1): "F.abs({0})", ("round", 1): "F.bround({0})",
    ("round", 2): "F.bround({0}, {1})", ("pow", 2): "F.pow({0}, {1})",
    ("divmod", 2): "F.struct(F.floor({0} / {1}), F.pmod({0}, {1}))", ("min", 1): "F.array_min({0})",
    ("max", 1): "F.array_max({0})", ("sum", 1): "F.aggregate({0}, F.lit(0.0), lambda total, each: total + each)",
    ("sorted", 1): "F.array_sort({0})", ("reversed", 1): "F.reverse({0})", ("list", 1): "{0}", ("tuple", 1): "{0}",
    ("set", 1): "F.array_distinct({0})",
    ("frozenset", 1): "F.array_distinct({0})", ("dict", 1): "{0}", ("ord", 1): "F.ascii({0})",
    ("chr", 1): "F.char({0})", ("hash", 1): "F.xxhash64({0})", ("hex", 1): "F.concat(F.lit('0x'), F.lower(F.hex({0})))",
    ("bin", 1): "F.concat(F.lit('0b'), F.bin({0}))",
    ("range", 1): "F.filter(F.sequence(F.lit(0), {0}), lambda each: each < {0})", ("Decimal", 1): "{0}.cast('decimal(38,9)')",
    ("decimal.Decimal", 1): "{0}.cast('decimal(38,9)')",
    ("json.loads", 1): "F.from_json({0}, 'field string')", ("json.dumps", 1): "F.to_json({0})",
    ("datetime.fromisoformat", 1): "F.to_timestamp({0})",
    ("datetime.fromtimestamp", 1): "F.timestamp_seconds({0})", ("date.fromisoformat", 1): "F.to_date({0})",
    ("base64.b64decode", 1): "F.unbase64({0})", ("base64.b64encode", 1): "F.base64({0})", ("hashlib.md5", 1): "F.md5({0})",
    ("hashlib.sha1", 1): "F.sha1({0})", ("hashlib.sha256", 1): "F.sha2({0}, 256)", ("hashlib.sha512", 1): "F.sha2({0}, 512)",
    ("parse.quote_plus", 1): "F.url_encode({0})", ("parse.unquote_plus", 1): "F.url_decode({0})",
    ("isnan", 1): "F.isnan({0})", ("sqrt", 1): "F.sqrt({0})", ("exp", 1): "F.exp({0})", ("log", 1): "F.log({0})",
    ("log", 2): "F.log({0}) / F.log(F.lit({1}))",
    ("log2", 1): "F.log2({0})", ("log10", 1): "F.log10({0})", ("log1p", 1): "F.log1p({0})",
    ("floor", 1): "F.floor({0})", ("ceil", 1): "F.ceil({0})", ("fabs", 1): "F.abs({0})", ("trunc", 1): "{0}.cast('bigint')",
    ("sin", 1): "F.sin({0})", ("cos", 1): "F.cos({0})", ("tan", 1): "F.tan({0})", ("hypot", 2): "F.hypot({0}, {1})",
    ("radians", 1): "F.radians({0})", ("degrees", 1): "F.degrees({0})", ("atan2", 2): "F.atan2({0}, {1})",
    ("str.lower", 1): "F.lower({0})", ("str.upper", 1): "F.upper({0})", ("str.strip", 1): f"F.trim({{0}}, {_SPACES})",
}  # fmt: skip
"""Counterparts of functions, by name and number of arguments; the name has its module, except for ``math``."""

RESULTS: dict[str, str] = {
    **dict.fromkeys(
        ("lower", "casefold", "upper", "title", "capitalize", "strip", "lstrip", "rstrip", "replace", "zfill", "ljust", "rjust",
         "removeprefix", "removesuffix", "decode", "hex", "hexdigest", "strftime", "isoformat", "join", "format", "str",
         "toLowerCase", "toUpperCase", "trim", "charAt", "substring", "replaceAll"),
        "string",
    ),
    **dict.fromkeys(("split", "splitlines", "keys", "values", "items", "findall"), "array"),
    **dict.fromkeys(("find", "index", "len", "int", "weekday", "ord", "length", "indexOf"), "bigint"),
    "float": "double",
}  # fmt: skip
"""Spark's types of what Python's methods and functions give, by name."""

OPERATORS: dict[type[ast.operator], str] = {
    ast.FloorDiv: "F.floor({0} / {1})", ast.LShift: "F.shiftleft({0}, {1})", ast.RShift: "F.shiftright({0}, {1})",
    ast.BitXor: "{0}.bitwiseXOR({1})",
}  # fmt: skip
"""Counterparts of the operators that Column does not have."""


def constant_text(node: ast.AST | None) -> str | None:
    """The text of a string in the code."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None
