"""Type of parsed documents: JSON objects and TOML tables.

Only its reader knows a document's shape, so its values are ``Any``. Documents of other instances are checked
field by field (``query.document_reader``); one that is made, not read, is a ``dict[str, object]``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Document = Mapping[str, Any]
"""Names and values: texts, numbers, booleans, None, lists, and documents again."""
