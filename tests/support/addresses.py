"""What a word of a table is called: ``entries[3].life``, ``slots[2][17]``, ``participants[0].intent.step``."""

from zonetrack.shm.layout import (
    DELETE,
    DELETE_LIST_MAX,
    ENTRY,
    EXTENSION,
    GLOBAL,
    PARTICIPANT,
    POLICY,
    QUOTA,
    SEGMENT,
    SLOTS,
    ZONE,
)

RECORDS = {
    "globals": GLOBAL,
    "zones": ZONE,
    "quotas": QUOTA,
    "policies": POLICY,
    "participants": PARTICIPANT,
    "entries": ENTRY,
    "extensions": EXTENSION,
    "segments": SEGMENT,
}


def field_at(dtype, offset):
    """Return the name of the field at an offset of a record, with its index or its own field."""
    for name, (inner, start, *_) in dtype.fields.items():
        if start <= offset < start + inner.itemsize:
            base, at = inner.base, offset - start
            index = f"[{at // base.itemsize}]" if inner.shape else ""
            rest = at % base.itemsize if inner.shape else at
            return f"{name}{index}.{field_at(base, rest)}" if base.fields else name + index
    return f"+{offset}"


def name(table, address):
    """Return the name of the word at an address; the address itself where it is none of the table's."""
    for region, base in table.base.items():
        if not base <= address < base + table.geometry.region_bytes(region):
            continue
        offsets, arrays = table.geometry.offsets(region), table.geometry.arrays(region)
        for array, first in reversed(offsets.items()):
            count, size = arrays[array]
            index, offset = divmod(address - base - first, size)
            if 0 <= index < count:
                if array in RECORDS:
                    return f"{array}[{index}].{field_at(RECORDS[array], offset)}"
                if array == "delete_lists":
                    line, offset = divmod(offset, DELETE.itemsize)
                    assert line < DELETE_LIST_MAX
                    return f"{array}[{index}][{line}].{field_at(DELETE, offset)}"
                return f"{array}[{index}][{offset // 8}]" if array == "slots" and SLOTS > 1 else f"{array}[{index}]"
    return f"{address:#x}"
