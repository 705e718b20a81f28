"""The estimate, against what common tokenizers make of the same texts, and the ledger."""

from __future__ import annotations

import base64
import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from agent_session.compaction.tokens import (
    IMAGE_TOKENS,
    TokenLedger,
    estimate_chars_as_tokens,
    estimate_fixed_request_tokens,
    estimate_message_tokens,
    estimate_text_tokens,
)
from agent_session.llm.client import ToolDefinition
from session_store.messages import (
    AssistantMessage,
    BashExecutionMessage,
    CompactionSummaryMessage,
    ImageContent,
    Message,
    SystemMessage,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    UnknownContent,
    UnknownMessage,
    Usage,
    UserMessage,
)

NOISE = random.Random(7)
PROSE = "The parser fails on empty input, because the first token is read before anybody looks whether there is one. "


def user(*blocks: TextContent | ImageContent | UnknownContent) -> UserMessage:
    return UserMessage(content=blocks)


def answer(*blocks: TextContent | ThinkingContent | ToolCall, usage: Usage | None = None) -> AssistantMessage:
    return AssistantMessage(content=blocks, usage=usage or Usage(estimated=True))


# Mutation: another number of characters a token.
def test_latin_prose_is_four_characters_a_token():
    assert estimate_text_tokens(PROSE * 10) == len(PROSE * 10) / 4
    assert estimate_text_tokens("") == 0
    assert estimate_text_tokens("a") == 1
    assert estimate_chars_as_tokens("abcde") == 2


# Tokens for each character as four tokenizers count them (cl100k, o200k, two open ones): lowest and highest.
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
def test_scripts_weigh_what_tokenizers_make_of_them(text, lowest, highest):
    assert lowest <= estimate_text_tokens(text * 20) / (len(text) * 20) <= highest * 1.2


# Mutation: weigh the first byte of kana, CJK and Hangul at 3 twelfths.
@pytest.mark.parametrize("character", ["漢", "语", "あ", "ア", "가", "힣", "。"])
def test_a_dense_character_is_at_least_a_token(character):
    assert estimate_text_tokens(character * 1_000) >= 1_000


# Mutation: leave out `_surplus_of_runs`; or one weight for all runs.
@pytest.mark.parametrize(
    ("run", "chars_per_token"),
    [
        (base64.b64encode(NOISE.randbytes(3_000)).decode(), 1.42),
        (NOISE.randbytes(2_000).hex(), 1.74),
        ("".join(NOISE.choices("0123456789", k=4_000)), 2.6),
        ("\n".join(NOISE.randbytes(32).hex() for _ in range(50)), 1.74),
    ],
)
def test_long_runs_of_many_symbols_are_heavier(run, chars_per_token):
    assert estimate_text_tokens(run) == pytest.approx(len(run) / chars_per_token, rel=0.1)
    surrounded = estimate_text_tokens(f"{PROSE}\n{run} {PROSE}")
    assert surrounded == pytest.approx(estimate_text_tokens(run) + 2 * estimate_text_tokens(PROSE), abs=3)


# Mutation: count the symbols of a run as three at least.
@pytest.mark.parametrize("run", ["x" * 8_000, "-" * 8_000, "01" * 4_000, "=-" * 4_000])
def test_a_run_of_one_or_two_symbols_keeps_the_plain_rule(run):
    assert estimate_text_tokens(run) == 2_000


# Mutation: no condition on digits below `_SURE_RUN`.
def test_long_paths_and_names_are_words():
    path = "src/main/java/com/company/project/module7/service/impl/UserServiceImplementation"
    assert estimate_text_tokens(path) == len(path) // 4


# Mutation: encode strictly.
def test_half_a_surrogate_pair_is_counted_like_any_character():
    assert estimate_text_tokens("ok \ud83d") >= 2


# Mutation: a loop over the characters.
def test_a_million_characters_are_counted_in_milliseconds():
    text = (PROSE * 10_000)[:1_000_000]
    best = min(_seconds(text) for _ in range(7))
    # Ten milliseconds on an idle machine, with room for a busy one; a loop takes a hundred at least.
    assert best < 0.03


def _seconds(text: str) -> float:
    start = time.perf_counter()
    estimate_text_tokens(text)
    return time.perf_counter() - start


# Mutation: subtract anything for what stands together.
@given(st.text(max_size=200), st.text(max_size=200))
def test_more_text_is_never_fewer_tokens(first, second):
    assert estimate_text_tokens(first + second) >= estimate_text_tokens(first)


# Mutation: leave out thinking, one of the signatures, the name or the arguments.
@pytest.mark.parametrize(
    "heavy",
    [
        ThinkingContent("word " * 8_000),
        ThinkingContent("", thinking_signature="s" * 40_000),
        TextContent("", text_signature="s" * 40_000),
        ToolCall("c1", "read", {}, thought_signature="s" * 40_000),
        ToolCall("c1", "n" * 40_000, {}),
        ToolCall("c1", "write", {"content": "word " * 8_000}),
        ToolCall("c1", "write", {"half": "\ud83d" + "word " * 8_000}),
        ToolCall("c1", "write", {"number": 2**70, "content": "word " * 8_000}),
    ],
)
def test_everything_that_is_sent_again_counts(heavy):
    assert 10_000 <= estimate_message_tokens(answer(heavy)) < 12_000


# Mutation: take an opaque signature for words.
def test_a_signature_weighs_what_base64_weighs():
    signature = base64.b64encode(NOISE.randbytes(30_000)).decode()
    assert estimate_message_tokens(answer(ThinkingContent("", thinking_signature=signature))) > len(signature) // 2


# Mutation: count an image by its data.
def test_an_image_has_one_cost_whatever_its_size():
    small = estimate_message_tokens(user(ImageContent("QUJD", "image/png")))
    large = estimate_message_tokens(user(ImageContent("QUJD" * 1_000_000, "image/png")))
    assert small == large
    assert IMAGE_TOKENS <= small < IMAGE_TOKENS + 50


# Mutation: ignore the reported output; or believe an output that nobody reported.
def test_an_answer_weighs_at_least_its_reported_output():
    usage = Usage(input=10, output=5_000)
    assert estimate_message_tokens(answer(TextContent("ok"), usage=usage)) == 5_000
    assert estimate_message_tokens(answer(TextContent("ok"), usage=Usage(output=5_000, estimated=True))) < 20
    assert estimate_message_tokens(answer(TextContent("word " * 8_000), usage=usage)) > 9_000


# Mutation: count the raw JSON of a block, or a message, that nobody is sent.
@pytest.mark.parametrize(
    "message",
    [
        SystemMessage(content=(TextContent("word " * 1_000),)),
        UnknownMessage(role="future", raw={"text": "word " * 1_000}),
        BashExecutionMessage(command="ls", output="word " * 1_000, exclude_from_context=True),
        user(UnknownContent("future", {"data": "word " * 1_000})),
    ],
)
def test_what_is_never_sent_weighs_nothing(message):
    assert estimate_message_tokens(message) < 10


@pytest.mark.parametrize(
    "message",
    [
        BashExecutionMessage(command="ls", output="word " * 800),
        CompactionSummaryMessage(summary="word " * 800),
        ToolResultMessage(tool_call_id="c1", tool_name="read", content=(TextContent("word " * 800),)),
    ],
)
def test_shell_output_summaries_and_results_weigh_their_text(message):
    assert 1_000 < estimate_message_tokens(message) < 1_100


# Mutation: leave out the prompt, or the parameters.
def test_the_fixed_overhead_is_prompt_and_tools():
    tool = ToolDefinition(
        name="read",
        description="Reads a file. " * 20,
        parameters={"type": "object", "properties": {"path": {"type": "string", "description": "word " * 400}}},
    )
    prompt = estimate_fixed_request_tokens("word " * 800, ())
    assert 1_000 <= prompt < 1_020
    tools = estimate_fixed_request_tokens("", (tool, tool))
    assert tools > 2 * (500 + 70)
    assert estimate_fixed_request_tokens("word " * 800, (tool, tool)) == prompt + tools
    assert estimate_fixed_request_tokens("", ()) == 0


class CountedText(str):
    """Text that notes each time it is encoded: once for each estimate."""

    __slots__ = ()
    encodings = 0

    @override
    def encode(self, *args, **kwargs):
        CountedText.encodings += 1
        return super().encode(*args, **kwargs)


# Mutation: count anew in `total`; or tell messages apart by equality (the last assertion).
def test_an_unchanged_message_is_counted_once():
    CountedText.encodings = 0
    message, same_words = user(TextContent(CountedText("hello"))), user(TextContent(CountedText("hello")))
    ledger = TokenLedger()
    first = ledger.count(message)
    assert ledger.total([message, message]) == 2 * first
    assert CountedText.encodings == 1
    ledger.count(same_words)
    assert CountedText.encodings == 2


# Mutation: keep all entries in `forget_all_but`; or drop those of the context too (the second assertion).
def test_the_ledger_holds_the_context_and_not_the_session():
    ledger = TokenLedger()
    context: list[Message] = []
    for number in range(5_000):
        context = [*context, user(TextContent(f"message {number}"))][-20:]
        ledger.total(context)
        ledger.forget_all_but(context)
        assert len(ledger) <= 2 * 20 + 64 + 1
    CountedText.encodings = 0
    kept = user(TextContent(CountedText("kept")))
    ledger.count(kept)
    for number in range(200):
        ledger.count(user(TextContent(f"gone {number}")))
    ledger.forget_all_but([kept])
    ledger.count(kept)
    assert CountedText.encodings == 1
    assert len(ledger) == 1
