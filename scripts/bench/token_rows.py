"""Texts of all kinds that sessions are made of, the same each time."""

from __future__ import annotations

import base64
import json
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[2]
_NOISE = random.Random(11)  # noqa: S311 - no secret is made of it
_NAMES = ("parser", "lexer", "reader", "writer", "session")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """`is_latin`: the goal for the time holds. `is_one_symbol`: shown, and not judged."""

    name: str
    text: str
    is_latin: bool = True
    is_one_symbol: bool = False


def _file(path: str) -> str:
    return (_ROOT / path).read_text(encoding="utf-8")


def _records() -> list[dict[str, Any]]:
    return [
        {"path": f"src/{_NAMES[i % 5]}_{i}.py", "line": i * 37 % 900, "ok": i % 3 == 0, "score": round(i / 7, 4)}
        for i in range(200)
    ]


def _log() -> str:
    return "\n".join(
        f"2026-11-{1 + i % 28:02}T{i % 24:02}:{i * 7 % 60:02}:{i * 13 % 60:02}.{i * 37 % 1000:03}Z INFO "
        f"worker-{i % 9} request id={_NOISE.getrandbits(32):08x} took {i} ms status={(200, 404, 500)[i % 3]}"
        for i in range(200)
    )


def _diff() -> str:
    return "\n".join(
        f"@@ -{i},7 +{i},8 @@ def parse(tokens):\n-    return tokens[{i}]\n+    if not tokens:\n+        return None"
        for i in range(100)
    )


def _other_code() -> str:
    return (
        """
export async function load(path: string, options: LoadOptions = {}): Promise<Session | undefined> {
  const lines = (await readFile(path, "utf8")).split("\\n").filter((line) => line.length > 0);
  return lines.length === 0 ? undefined : new Session(lines.map((line) => JSON.parse(line)), options);
}

impl<'a> Reader<'a> {
    pub fn next_entry(&mut self) -> Option<Result<Entry, ReadError>> {
        let line = self.lines.next()?;
        Some(serde_json::from_str(line).map_err(|error| ReadError::Line { number: self.number, error }))
    }
}

func (s *Store) Append(ctx context.Context, entry *Entry) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("append %s: %w", entry.ID, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.encoder.Encode(entry)
}

SELECT sessions.id, count(entries.id) AS entries FROM sessions LEFT JOIN entries ON entries.session_id = sessions.id
WHERE sessions.updated_at > now() - interval '7 days' GROUP BY sessions.id HAVING count(entries.id) > 100;
"""
        * 8
    )


ROWS = (
    Row(name="English", text=_file("docs/architecture.md") + _file("CONTRIBUTING.md")),
    Row(name="Python", text=_file("agent_session/compactor.py") + _file("tests/session/test_queue.py")),
    Row(name="TypeScript, Rust, Go, SQL", text=_other_code()),
    Row(name="JSON", text=json.dumps(_records(), separators=(",", ":"))),
    Row(name="JSON, indented", text=json.dumps(_records(), indent=2)),
    Row(name="log lines", text=_log()),
    Row(name="a diff", text=_diff()),
    Row(
        name="numbers", text="\n".join(",".join(f"{_NOISE.random() * 1000:.3f}" for _ in range(8)) for _ in range(200))
    ),
    Row(
        name="Chinese",
        text="我们需要在每次回合结束之后检查上下文的大小。如果超过了阈值、就把旧的历史压缩成摘要。用户可以随时中断压缩。"
        * 20,
        is_latin=False,
    ),
    Row(
        name="Japanese",
        text="コンテキストのサイズを確認し、しきい値を超えた場合は古い履歴を要約に圧縮してから続行します。" * 20,
        is_latin=False,
    ),
    Row(
        name="Korean",
        text="매 턴이 끝난 후 컨텍스트 크기를 확인하고 임계값을 초과하면 오래된 기록을 요약으로 압축합니다. " * 20,
        is_latin=False,
    ),
    Row(
        name="Arabic",
        text="بعد كل دور يجب التحقق من حجم السياق وإذا تجاوز الحد يتم ضغط السجل القديم إلى ملخص. " * 20,
        is_latin=False,
    ),
    Row(
        name="Russian",
        text="После каждого хода нужно проверить размер контекста и сжать старую историю. " * 20,
        is_latin=False,
    ),
    Row(name="emoji", text="😀🎉🚀🔥💡🐍👍🏽👨\u200d👩\u200d👧❤️✅" * 40, is_latin=False),
    Row(name="base64", text=base64.b64encode(_NOISE.randbytes(9_000)).decode()),
    Row(name="base64 in lines", text=base64.encodebytes(_NOISE.randbytes(9_000)).decode()),
    Row(name="hex", text=_NOISE.randbytes(4_000).hex()),
    Row(name="hashes and names", text="\n".join(f"{_NOISE.randbytes(32).hex()}  dist/file{i}" for i in range(100))),
    Row(name="one letter", text="x" * 8_000, is_one_symbol=True),
    Row(name="one sign", text="-" * 8_000, is_one_symbol=True),
    Row(name="spaces", text=" " * 8_000, is_one_symbol=True),
)


def real_session_texts() -> list[str]:
    """The texts of a session in order: a real one where `AGENT_SESSION_TEST_DATA` names its folder, else one that reads
    this project's own files.
    """
    folder = os.environ.get("AGENT_SESSION_TEST_DATA")
    path = Path(folder) / "real-session-v1-a.jsonl" if folder else None
    if path is not None and path.exists():
        return list(_texts_of(path))
    files = sorted((_ROOT / "agent_session").rglob("*.py"))[::4]
    return [f"Read {path.name}, and tell me what it owns.\n{path.read_text(encoding='utf-8')}" for path in files]


def _texts_of(path: Path) -> Iterator[str]:
    for line in path.read_text(encoding="utf-8").splitlines():
        message = json.loads(line).get("message") or {}
        content = message.get("content")
        for block in [{"type": "text", "text": content}] if isinstance(content, str) else content or []:
            text = block.get("text") or block.get("thinking") or json.dumps(block.get("arguments") or "")
            if text.strip('"'):
                yield text
