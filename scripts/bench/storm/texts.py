"""What people, models and tools say in a storm: texts of every sort and size, each with its planted token in front.

Deterministic: the same dice give the same text. Sizes are tokens by rule of thumb; giants are cut at `MOST_CHARS`, so
that a window of a million tokens can be filled and a machine can still hold it.
"""

from __future__ import annotations

import base64
import json
import re
from random import Random
from typing import Final, Literal, TypeAlias, get_args

TextKind: TypeAlias = Literal["prose", "code", "json", "cjk", "base64", "hex", "emoji", "symbol", "broken", "lines"]

KINDS: Final[tuple[TextKind, ...]] = get_args(TextKind)

MOST_CHARS = 2_000_000

PLANTED = re.compile(r"\[\[m\d{6}\]\]")
"""What a planted token looks like."""

_SENTENCE: Final = (
    "the parser reads a line and the cache holds an index of every module that imports it while tests fail on "
    "Windows because paths differ so we changed the loader kept the old names added a check removed the shim"
)
_WORDS: Final = _SENTENCE.split()
_CJK: Final = "数据库连接超时错误日志显示服务重启后恢复正常但是缓存仍然为空需要检查配置文件中的端口设置"
_CHARS_PER_TOKEN: Final[dict[TextKind, float]] = {
    "prose": 4.5,
    "code": 3.0,
    "json": 3.0,
    "cjk": 1.0,
    "base64": 1.5,
    "hex": 1.7,
    "emoji": 0.5,
    "symbol": 8.0,
    "broken": 2.0,
    "lines": 3.5,
}
_BLOCK_CHARS = 3_000


def text_of(kind: TextKind, tokens: int, dice: Random) -> str:
    """About `tokens` tokens of this kind; a block of it is made, and repeated where more is wanted."""
    chars = max(1, min(MOST_CHARS, round(tokens * _CHARS_PER_TOKEN[kind])))
    block = _block(kind, min(chars, _BLOCK_CHARS), dice)
    repeated = block if len(block) >= chars else "\n".join([block] * (chars // (len(block) + 1) + 1))
    return repeated[:chars]


def planted_in(text: str) -> set[str]:
    """The planted tokens that occur anywhere in `text`."""
    return set(PLANTED.findall(text))


def planted_at_start(text: str) -> str | None:
    """The token that a message was planted with; None for a text without one in its first lines."""
    found = PLANTED.search(text, 0, 400)
    return found.group() if found else None


def _block(kind: TextKind, chars: int, dice: Random) -> str:
    match kind:
        case "prose":
            return " ".join(dice.choices(_WORDS, k=chars // 5 + 1))
        case "code":
            lines = chars // 30 + 1
            return "\n".join(f"    self.{dice.choice(_WORDS)}_{n} = {dice.random():.6f}" for n in range(lines))
        case "json":
            rows = [{"id": n, "name": dice.choice(_WORDS), "value": dice.random()} for n in range(chars // 50 + 1)]
            return json.dumps(rows)
        case "cjk":
            return "".join(dice.choices(_CJK, k=chars))
        case "base64":
            return base64.b64encode(dice.randbytes(chars * 3 // 4 + 3)).decode()
        case "hex":
            return dice.randbytes(chars // 2 + 1).hex()
        case "emoji":
            return "".join(dice.choices("🙂🚀🧪🔥🧵", k=chars))
        case "symbol":
            return dice.choice("=-.x ") * chars
        case "broken":
            return "".join(dice.choices("\ud83d\x00\x1b\u202e\ufffdé</conversation>", k=chars))
        case "lines":
            return "\n".join(f"/src/{dice.choice(_WORDS)}/{n}.py:{n * 7}: warning" for n in range(chars // 28 + 1))
