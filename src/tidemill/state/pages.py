"""Checks of an LMDB data file by plain file reads, before the file is mapped.

LMDB maps its file without checks: a page beyond the file's end ends the process with SIGBUS, and garbage can end it in other
ways. So ``read_header`` looks at the two meta pages (kind, magic, data version, roots inside the file), and ``find_fault`` walks
the trees from the top, breadth first: header of each page, slots, page numbers inside the file. A walk may be limited to a
number of pages; the upper levels, which lead everywhere, come first. What LMDB itself notices later, ``registry`` turns into
the same error.

Decides nothing about what to do with a corrupt file. Layout: LMDB 0.9 (data version 1), 64 bits, native byte order.
"""

from __future__ import annotations

import os
import stat
import struct
from collections import deque
from dataclasses import dataclass
from pathlib import Path

from tidemill.errors import CorruptStateError

_PAGE = struct.Struct("=QHHHH")  # page number, pad, flags, lower, upper (the last two: number of pages, if overflow)
_DB = struct.Struct("=IHHQQQQQ")  # pad (page size in the first of a meta page), flags, depth, page counts (3), entries, root
_META = struct.Struct("=IIQQ48s48sQQ")  # magic, data version, address, map size, free db, main db, last page, transaction
_NODE = struct.Struct("=HHHH")  # data size or page number (low, high), flags or page number's top, key size

_MAGIC = 0xBEEFC0DE
_DATA_VERSION = 1
_NO_ROOT = (1 << 64) - 1
_BRANCH, _LEAF, _OVERFLOW, _META_PAGE, _LEAF2 = 0x01, 0x02, 0x04, 0x08, 0x20
_BIG_DATA, _SUB_DATA = 0x01, 0x02
_ATTEMPTS_WHILE_WRITTEN = 5
_SMALLEST_PAGE, _LARGEST_PAGE = 256, 0x10000


@dataclass(frozen=True, slots=True, kw_only=True)
class FileHeader:
    """The newer meta page of a data file and the file's size."""

    page_size: int
    map_size: int
    roots: tuple[int, ...]
    last_page: int
    transaction: int
    file_size: int

    @property
    def is_short(self) -> bool:
        """The file ends before its last page: a sign of truncation, but also of a last page that was never used."""
        return self.file_size < (self.last_page + 1) * self.page_size


def read_header(path: Path) -> FileHeader | None:
    """The file's state by its meta pages, None if there is no file or it was never written to.

    Raises CorruptStateError if this can't be a file that LMDB wrote, or if it ends before its roots.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe would wait for who writes it
    except FileNotFoundError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise CorruptStateError(str(path), found="no regular file", expected="a file of LMDB")
        if os.fstat(descriptor).st_size == 0:
            return None
        first, page_size = _meta(path, os.pread(descriptor, _PAGE.size + _META.size, 0), 0)
        second, _ = _meta(path, os.pread(descriptor, _PAGE.size + _META.size, page_size), 1)
        # Last: a commit meanwhile may only make the file longer than the meta pages need.
        size = os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)
    _, _, _, map_size, free, main, last_page, transaction = max(first, second, key=lambda meta: meta[-1])
    roots = tuple(root for root in (_root(free), _root(main)) if root != _NO_ROOT)
    for root in roots:
        if root > last_page or (root + 1) * page_size > size:
            raise CorruptStateError(
                str(path), found=f"a file of {size} bytes", expected=f"a root at page {root} of {page_size} bytes"
            )
    return FileHeader(
        page_size=page_size, map_size=map_size, roots=roots, last_page=last_page, transaction=transaction, file_size=size
    )


def find_fault(path: Path, *, page_limit: int | None = None) -> CorruptStateError | None:
    """The first fault on a walk over the file's trees; None if there is none in the first `page_limit` pages.

    Meaningful only while no process commits to the file. Raises CorruptStateError as ``read_header`` does.
    """
    header = read_header(path)
    if header is None:
        return None
    pages_in_file = header.file_size // header.page_size
    descriptor = os.open(path, os.O_RDONLY)
    try:
        waiting = deque(header.roots)
        visited = 0
        while waiting and (page_limit is None or visited < page_limit):
            number = waiting.popleft()
            visited += 1
            if visited > header.last_page:
                return CorruptStateError(str(path), found="pages that are used twice", expected="a tree")
            if not 2 <= number <= header.last_page or number >= pages_in_file:
                limit = min(header.last_page, pages_in_file - 1)
                return CorruptStateError(str(path), found=f"a reference to page {number}", expected=f"one from 2 to {limit}")
            page = os.pread(descriptor, header.page_size, number * header.page_size)
            try:
                waiting.extend(_children(page, number, pages_in_file))
            except (ValueError, struct.error) as fault:
                found = "a node that ends beyond its page" if isinstance(fault, struct.error) else str(fault)
                return CorruptStateError(str(path), found=found, expected=f"a page of a B+ tree as page {number}")
        return None
    finally:
        os.close(descriptor)


def require_complete(path: Path) -> FileHeader | None:
    """``read_header``, and for a file that ends before its last page proof that nothing in use is missing.

    Raises CorruptStateError. While a writer commits all the time a short file may not be detected.
    """
    for _ in range(_ATTEMPTS_WHILE_WRITTEN):
        header = read_header(path)
        fault = find_fault(path) if header is not None and header.is_short else None
        if fault is None:
            return header
        if read_header(path) == header:
            raise fault
    return header


def require_readable(path: Path, *, page_limit: int) -> None:
    """For a process that only reads: CorruptStateError if one of the first ``page_limit`` pages is one that LMDB can't follow,
    which would end the process. While a writer commits all the time it may go unnoticed."""
    for _ in range(_ATTEMPTS_WHILE_WRITTEN):
        header = read_header(path)
        fault = find_fault(path, page_limit=page_limit)
        if fault is None:
            return
        if read_header(path) == header:
            raise fault


def _meta(path: Path, raw: bytes, number: int) -> tuple[tuple[int, int, int, int, bytes, bytes, int, int], int]:
    """A meta page's fields and the page size. Raises CorruptStateError."""
    if len(raw) < _PAGE.size + _META.size:
        raise CorruptStateError(str(path), found=f"a file that ends in meta page {number}", expected="two meta pages")
    _, _, flags, _, _ = _PAGE.unpack_from(raw)
    fields = _META.unpack_from(raw, _PAGE.size)
    magic, version, free = fields[0], fields[1], fields[4]
    if not flags & _META_PAGE or magic != _MAGIC:
        raise CorruptStateError(
            str(path), found=f"meta page {number} with magic number {magic:#010x}", expected=f"{_MAGIC:#010x} of LMDB"
        )
    if version & 0xFFFF != _DATA_VERSION:
        raise CorruptStateError(
            str(path), found=f"LMDB data version {version}", expected=f"{_DATA_VERSION} (the format of LMDB 0.9)"
        )
    page_size = _DB.unpack(free)[0]
    if not _SMALLEST_PAGE <= page_size <= _LARGEST_PAGE or page_size & (page_size - 1):
        raise CorruptStateError(str(path), found=f"a page size of {page_size}", expected="a power of two up to 65536")
    return fields, page_size


def _root(database: bytes) -> int:
    root: int = _DB.unpack(database)[-1]
    return root


def _children(page: bytes, number: int, pages_in_file: int) -> list[int]:
    """Numbers of the pages below `page`. Raises ValueError, with what was found, if it can't be page `number`."""
    own_number, pad, flags, lower, upper = _PAGE.unpack_from(page)
    kind = flags & (_BRANCH | _LEAF | _OVERFLOW | _META_PAGE | _LEAF2)
    if own_number != number or kind not in (_BRANCH, _LEAF, _LEAF | _LEAF2):
        raise ValueError(f"a page that says it is page {own_number} with flags {flags:#06x}")
    if kind & _LEAF2:
        return []  # Fixed-size items without nodes: none of our databases has them.
    if not _PAGE.size <= lower <= upper <= len(page) or lower % 2:
        raise ValueError(f"free space from byte {lower} to byte {upper}, padding {pad}")
    children: list[int] = []
    for (at,) in struct.iter_unpack("=H", page[_PAGE.size : lower]):
        if at < upper or at % 2:
            raise ValueError(f"a node at byte {at}")
        low, high, node_flags, key_size = _NODE.unpack_from(page, at)
        if kind == _BRANCH:
            children.append(low | high << 16 | node_flags << 32)
            continue
        data, size = at + _NODE.size + key_size, low | high << 16
        if node_flags & _BIG_DATA:
            first = struct.unpack_from("=Q", page, data)[0]
            last = first + (_PAGE.size + size - 1) // len(page)
            if first < 2 or last >= pages_in_file:
                raise ValueError(f"a value on the pages {first} to {last} of a file of {pages_in_file}")
        elif data + size > len(page):
            raise ValueError(f"a node of {size} bytes at byte {at}")
        elif node_flags & _SUB_DATA and (root := _root(page[data : data + size])) != _NO_ROOT:
            children.append(root)
    return children
