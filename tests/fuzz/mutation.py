"""Bytes, text and values made wrong, a little or wholly, from a ``random.Random``."""

from __future__ import annotations

NUMBERS = (
    0,
    1,
    2,
    7,
    8,
    127,
    128,
    255,
    256,
    32767,
    32768,
    65535,
    65536,
    (1 << 31) - 1,
    1 << 31,
    (1 << 32) - 1,
    1 << 32,
)
NUMBERS += ((1 << 63) - 1, 1 << 63, (1 << 64) - 1, -1, -128, -(1 << 31), -(1 << 63))
WORDS = (
    "",
    "0",
    "-1",
    "none",
    "true",
    "\0",
    "é",
    "\ud7ff",
    "x" * 300,
    "0x" + "f" * 40,
    "1e999",
    "::",
    "0/0",
    "1.2.3.4/33",
)
SIGNS = "=,:;()[]{}/.-+#'\"\\ \t\n\0*<>"


def octets(chance, data, changes_max=6):
    """Return bytes that were changed here and there, cut, repeated, or put in another order."""
    made = bytearray(data)
    for _ in range(chance.randint(1, changes_max)):
        size = len(made)
        at = chance.randrange(size + 1)
        match chance.randrange(8):
            case 0 | 1 if at < size:
                made[at] ^= 1 << chance.randrange(8)
            case 2 if at < size:
                made[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
            case 3:
                width = chance.choice((2, 4, 8))
                value = chance.choice(NUMBERS) & ((1 << 8 * width) - 1)
                made[at : at + width] = value.to_bytes(width, chance.choice(("little", "big")))
            case 4:
                del made[at : at + chance.choice((1, 2, 4, 16, 64))]
            case 5:
                made[at:at] = chance.randbytes(chance.choice((1, 2, 4, 16, 64)))
            case 6:
                first = chance.randrange(size + 1)
                made[at:at] = made[first : first + chance.choice((4, 16, 64))]
            case 7 if chance.random() < 0.3:
                del made[at:]
    return bytes(made)


def text(chance, given, changes_max=5):
    """Return text that was changed: characters, words, and lines."""
    made = given
    for _ in range(chance.randint(1, changes_max)):
        at, end = sorted((chance.randrange(len(made) + 1), chance.randrange(len(made) + 1)))
        match chance.randrange(7):
            case 0:
                made = made[:at] + chance.choice(SIGNS) + made[at:]
            case 1:
                made = made[:at] + made[at + 1 :]
            case 2:
                made = made[:at] + str(chance.choice((*NUMBERS, *WORDS))) + made[min(end, at + 12) :]
            case 3:
                made = made[:at] + made[min(end, at + 40) :]
            case 4:
                made = made[:end] + made[at : min(end, at + 40)] + made[end:]
            case 5:
                words = made.split(",")
                chance.shuffle(words)
                made = ",".join(words) if chance.random() < 0.2 else made
            case 6:
                made = made[:at] + chr(chance.choice((chance.randrange(128), chance.randrange(0xD800)))) + made[at:]
    return made


def value(chance, given=None, depth=0):
    """Return a value that MessagePack and JSON have; like ``given``, or like nothing."""
    if given is not None and chance.random() < 0.6:
        if isinstance(given, dict):
            made = {name: value(chance, one, depth + 1) for name, one in given.items()}
            if chance.random() < 0.2:
                made[str(chance.choice((*WORDS, *made)))] = value(chance, depth=depth + 1)
            return made
        if isinstance(given, list):
            made = [value(chance, one, depth + 1) for one in given]
            return made[: chance.randrange(len(made) + 1)] if chance.random() < 0.2 else made
        if chance.random() < 0.7:
            return given
    kinds = 5 if depth > 3 else 7
    match chance.randrange(kinds):
        case 0:
            return chance.choice((None, True, False))
        case 1:
            return chance.choice(NUMBERS)
        case 2:
            return chance.choice(WORDS)
        case 3:
            return chance.choice((0.0, -0.0, 1.5, float("inf"), float("-inf"), float("nan"), 1e300))
        case 4:
            return chance.randbytes(chance.choice((0, 1, 8, 70)))
        case 5:
            return [value(chance, depth=depth + 1) for _ in range(chance.randrange(4))]
        case _:
            return {str(chance.choice(WORDS)): value(chance, depth=depth + 1) for _ in range(chance.randrange(4))}
