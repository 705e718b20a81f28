"""The estimate of a text, against what two public encoders make of it."""

from __future__ import annotations

import base64
import importlib.util
import json
import os
import random
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_session.compaction.text_tokens import (
    MOST_CHARS_PER_TOKEN,
    estimate_chars_as_tokens,
    estimate_text_tokens,
)

NOISE = random.Random(7)
PROSE = "The parser fails on empty input, because the first token is read before anybody looks whether there is one. "
CODE = '''
def parse(tokens: list[str], *, strict: bool = False) -> Tree:
    """The tree of `tokens`; raises ParseError where there is none."""
    for position, token in enumerate(tokens):
        if token not in self._known_tokens and strict:
            raise ParseError(f"{token!r} at {position}: not expected here")
    return Tree(self.root, children=[Leaf(token) for token in tokens if token])
'''
ROWS = [{"path": f"src/module_{i}.py", "line": i * 37 % 900, "ok": i % 3 == 0, "score": i / 7} for i in range(60)]
LOG = "".join(
    f"2026-11-{1 + i % 28:02}T{i % 24:02}:{i * 7 % 60:02}:00.{i * 37 % 1000:03}Z INFO request took {i} ms status=200\n"
    for i in range(60)
)
LATIN = {
    "prose": PROSE * 10,
    "code": CODE * 5,
    "json": json.dumps(ROWS),
    "indented json": json.dumps(ROWS, indent=2),
    "log": LOG,
    "base64": base64.b64encode(NOISE.randbytes(3_000)).decode(),
    "base64 in lines": base64.encodebytes(NOISE.randbytes(3_000)).decode(),
    "hex": NOISE.randbytes(2_000).hex(),
    "hex in lines": "\n".join(NOISE.randbytes(32).hex() for _ in range(50)),
    "digits": "".join(NOISE.choices("0123456789", k=4_000)),
    "small letters": "".join(NOISE.choices("abcdefghijklmnopqrstuvwxyz", k=4_000)),
    "capitals": "".join(NOISE.choices("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", k=4_000)),
    "signs": "".join(NOISE.choices("!@#$%^&*()_+-=[]{};:,.<>/?", k=4_000)),
    "colours of a terminal": "\x1b[32m\N{CHECK MARK}\x1b[0m \x1b[90mthe parser ends at an empty line\x1b[39m\n" * 40,
}


@pytest.fixture(scope="session")
def encoders() -> list[Any]:
    """cl100k and o200k, from the files that litellm brings along; nothing is fetched."""
    litellm = importlib.util.find_spec("litellm")
    assert litellm is not None
    assert litellm.submodule_search_locations is not None
    folder = Path(litellm.submodule_search_locations[0]) / "litellm_core_utils" / "tokenizers"
    os.environ["TIKTOKEN_CACHE_DIR"] = str(folder)
    tiktoken = pytest.importorskip("tiktoken")
    return [tiktoken.get_encoding(name) for name in ("cl100k_base", "o200k_base")]


def true_tokens(encoders: list[Any], text: str) -> list[int]:
    return [len(encoder.encode(text, disallowed_special=())) for encoder in encoders]


# Mutations: leave out the weight of any piece; the surplus of long pieces; count control characters as signs.
@pytest.mark.parametrize("name", LATIN)
def test_latin_texts_of_all_kinds_are_within_a_quarter_of_the_truth(encoders, name):
    for truth in true_tokens(encoders, LATIN[name]):
        assert 0.8 <= estimate_text_tokens(LATIN[name]) / truth <= 1.25


# Mutation: weigh a path as a long run of many symbols.
def test_long_paths_and_names_are_words(encoders):
    path = "src/main/java/com/company/project/module7/service/impl/UserServiceImplementation\n" * 20
    assert 0.8 <= estimate_text_tokens(path) / max(true_tokens(encoders, path)) <= 1.5


# Lowest and highest tokens for each character, as four tokenizers count them (cl100k, o200k, two open ones).
# Mutation: give any of these scripts the weight of another group.
@pytest.mark.parametrize(
    ("text", "lowest", "highest"),
    [
        ("我们需要在每次回合结束之后检查上下文的大小。如果超过了阈值、就把旧的历史压缩成摘要。", 0.49, 0.99),
        ("コンテキストのサイズを確認し、しきい値を超えた場合は古い履歴を要約に圧縮してから続行します。", 0.68, 1.05),
        ("매 턴이 끝난 후 컨텍스트 크기를 확인하고 임계값을 초과하면 오래된 기록을 요약으로 압축합니다.", 0.54, 1.01),
        ("После каждого хода нужно проверить размер контекста и сжать старую историю.", 0.24, 0.47),
        ("Μετά από κάθε γύρο πρέπει να ελέγχουμε το μέγεθος του πλαισίου.", 0.37, 1.11),  # noqa: RUF001 - it is Greek
        ("אחרי כל תור צריך לבדוק את גודל ההקשר ואם הוא עולה על הסף", 0.36, 0.95),
        ("بعد كل دور يجب التحقق من حجم السياق وإذا تجاوز الحد", 0.28, 0.91),
        ("प्रत्येक बारी के बाद संदर्भ के आकार की जाँच करें", 0.27, 1.02),
        ("หลังจากแต่ละรอบต้องตรวจสอบขนาดของบริบท", 0.32, 1.83),
        ("ყოველი სვლის შემდეგ უნდა შევამოწმოთ კონტექსტის ზომა", 0.37, 1.84),
        ("Sau mỗi lượt cần kiểm tra kích thước ngữ cảnh và nếu vượt quá ngưỡng", 0.29, 0.72),
        ("Nach jeder Runde muss die Größe des Kontexts geprüft werden.", 0.20, 0.32),
        ("😀🎉🚀🔥💡🐍", 1.64, 2.6),
    ],
)
def test_scripts_weigh_what_tokenizers_make_of_them(encoders, text, lowest, highest):
    text *= 20
    assert lowest <= estimate_text_tokens(text) / len(text) <= highest * 1.2
    # Far fewer than the densest encoder counts would end in a refused request.
    assert estimate_text_tokens(text) >= 0.8 * max(true_tokens(encoders, text))


# Mutation: weigh the first byte of kana, CJK and Hangul as that of Cyrillic.
@pytest.mark.parametrize("character", ["漢", "语", "あ", "ア", "가", "힣", "。"])
def test_a_dense_character_is_at_least_a_token(character):
    assert estimate_text_tokens(character * 1_000) >= 1_000


# Mutations: take a run of one symbol for an opaque one; leave the plain rule out.
@pytest.mark.parametrize("run", ["x" * 8_000, "-" * 8_000, "01" * 4_000, "=-" * 4_000, "ab" * 4_000, " " * 8_000])
def test_a_run_of_one_or_two_symbols_keeps_the_plain_rule(run):
    assert estimate_text_tokens(run) == 2_000 == estimate_chars_as_tokens(run)
    assert estimate_text_tokens(run + PROSE) == pytest.approx(2_000 + estimate_text_tokens(PROSE), abs=1)


# Mutation: look for two symbols at the beginning of a run alone.
def test_a_run_is_opaque_from_its_third_symbol_on():
    assert estimate_text_tokens("x" * 4_000 + "xyz" * 1_000) > 1.5 * estimate_text_tokens("xy" * 3_500)


# Mutation: no weight for some byte; the constant a tenth of what it is.
@given(st.one_of(st.text(min_size=1), st.text(alphabet=" aA1-\n漢é", min_size=1, max_size=3_000)))
def test_no_text_takes_fewer_tokens_than_the_constant_says(text):
    assert estimate_text_tokens(text) > 0
    assert len(text) / estimate_text_tokens(text) < MOST_CHARS_PER_TOKEN


def test_no_text_is_no_token():
    assert estimate_text_tokens("") == estimate_chars_as_tokens("") == 0
    assert estimate_text_tokens("a") == estimate_chars_as_tokens("a") == 1
    assert estimate_chars_as_tokens("abcde") == 2


# Mutation: encode strictly.
def test_half_a_surrogate_pair_is_counted_like_any_character():
    assert estimate_text_tokens("ok \ud83d") >= 2


# Mutation: begin each part of a long text a character late.
@pytest.mark.parametrize("text", [PROSE, "漢字の文", "0123456789abcdef", "x"])
def test_long_texts_weigh_what_their_parts_weigh(text):
    once = estimate_text_tokens(text * 1_000)
    assert estimate_text_tokens(text * 10_000) == pytest.approx(10 * once, rel=0.01)


# Mutation: a loop over the characters.
def test_a_million_characters_are_counted_in_milliseconds():
    text = (PROSE * 10_000)[:1_000_000]
    best = min(_seconds(text) for _ in range(7))
    # Ten milliseconds on an idle machine, with room for a busy one; a loop takes a hundred at least.
    assert best < 0.05


def _seconds(text: str) -> float:
    start = time.perf_counter()
    estimate_text_tokens(text)
    return time.perf_counter() - start


# Mutation: subtract anything for what stands together.
@given(st.text(alphabet=st.one_of(st.characters(), st.sampled_from("x- 1")), max_size=200), st.text(max_size=200))
def test_more_text_is_never_fewer_tokens(first, second):
    assert estimate_text_tokens(first + second) >= estimate_text_tokens(first)


# Mutation: let a long piece weigh less than the same piece one character shorter.
@pytest.mark.parametrize("symbols", ["x", "-", "1", " ", "\n", "ab", "abc", "AB2", "123", "-=+"])
def test_each_character_of_a_growing_run_is_no_fewer_tokens(symbols):
    run = symbols * 60
    sizes = [estimate_text_tokens(run[:length]) for length in range(len(run))]
    assert sizes == sorted(sizes)
