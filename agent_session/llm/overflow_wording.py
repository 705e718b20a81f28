"""Whether words say that a request was longer than the model takes: by their shape, in any provider's wording.

An overflow puts a quantity of input beyond a limit, or states a limit that input must keep. Words are of four sorts:
what is measured (prompt, messages), what it is measured in (tokens, the window), that it is beyond, that it must stay
below. A sentence or two with the right ones is an overflow, whoever wrote them. Languages share the shapes, so each
sort has its words in several. Pure.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final


def _any_of(*patterns: str) -> str:
    r"""One expression for all. `\<` and `\>` are where a word begins and ends, lines and digits being no part of it;
    `~` is what joins the words of an identifier: a blank, a line, a hyphen, nothing.
    """
    joined = "|".join(patterns)
    return joined.replace("~", r"[\s_\-]*").replace(r"\<", "(?<![a-zäöüß])").replace(r"\>", "(?![a-zäöüß])")


def _words(*patterns: str) -> re.Pattern[str]:
    return re.compile(_any_of(*patterns), re.IGNORECASE)


_CONVERSATION: Final = _any_of(
    r"\<(prompt|input|message|conversation|chat|dialogue|transcript|history|query|queries|text|sequence)s?\>",
    "输入|提示|消息|对话|请求|輸入|訊息|對話|請求|入力|プロンプト|입력|프롬프트|대화",
    r"eingabe|anfrage|nachricht|unterhaltung|verlauf|gespräch|requête|entrée|\<invite\>",
    "entrada|mensaje|mensagem|conversaci|conversa |solicitud|richiesta|запрос",
)
_INPUT: Final = _words(_CONVERSATION, r"\<(requests?|requested|received|sent)\>")
_PROMPT: Final = _words(r"\<(prompts?|inputs?|messages?|conversation|chat|history)\>")

_TOKENS: Final = _words(
    r"\<tokens\>",
    r"\d\W*k?~token\>",
    r"\<token~(count|limit|length|window|budget|number|usage|size|indices|overflow)",
    r"个\s?tokens?|tokens?\s?[总数的]|トークン|토큰|токен|jetons?\b",
)
_WINDOW: Final = _words(
    r"\<context(?!~(deadline|cancel))\>",
    r"\<window\>|\<(n_?)?ctx\>|\<kv~(cache|slots?)|\<input~ids",
    "max~model~len|max~position~embeddings|seq(uence)?~len",
    r"\<(prompt|input|conversation|history|messages?)~(tokens?~)?len(gth)?\>",
    "length~of~(the~)?(prompt|input|messages|conversation)",
    "上下文|コンテキスト|컨텍스트|kontext|contexte|contexto|contesto|контекст",
)
_ALLOWED_LENGTH: Final = _words("(max(imum)?|allowed|supported)~((allowed|supported|input|prompt)~)?(length|size)")

_TOO_LONG: Final = _any_of(
    r"\<too~(long|large|big|much)\>",
    "超长|过长|太长|過長|長すぎ|너무 (길|깁|많)",
    r"\<zu (lang|groß|viele)|\<trop (long|grand)|(demasiado|muy|muito|troppo) (larg|long|grand|lung)|слишком",
)
_BEYOND: Final = _words(
    _TOO_LONG,
    r"\<too~(many|little)\>",
    "exceed|surpass|overshoot|outgr[eo]w|exhausted|used up|r[au]n out|out of range",
    r"\<(long|larg|great|bigg|small)er than|\<more ([a-z]+ )?than",
    r"\<(beyond|above|past) (the|its|this|what|our|\d)",
    r"\<over~(flow|run|limit)|\<over (the|this|its|our) ([\w\-']+ ){0,3}(limit|window|context|max|budget|\d)",
    r"(not|n't) fit|not enough|no (room|space)|\<blown\>|\<fills?\>|\<(is|are|was)~full",
    r"\<(reached|hit) ([a-z]+ ){0,2}(limit|max\w*|length|context|window)",
    r"\<(limit|length|max\w*|window|context) ([\w\-]+ ){0,5}reached",
    "超过|超出|超限|过大|已满|超え|超過|초과",
    "überschr|(länger|größer) als|dépass|exced[ei]|supera|превыш",
)
_MUST_STAY_BELOW: Final = _words(
    r"(must|should|can(not)?|may not) \w* ?\w* ?(<=|≤|less|fewer|at most|exceed|no more|within|below|under)",
    r"(must|should) be (in )?\[|<= ?\d|\<max(imum)?\>|\<at most\>|\<up to \d",
    "最大|最多|höchstens",
)

# An input that is said to be too long needs no measure.
_TOO_LONG_AS_SUCH: Final = _words(
    rf"({_CONVERSATION}|\<context\>)[^.;。\n]{{0,24}}?({_TOO_LONG})",
    r"\<too~(long|large|big|many|much)~((input|prompt)~)?(prompt|input|context|tokens)\>",
    r"\<(prompt|input|conversation|history|query)s? ((is|are|was|were) )?(long|larg|bigg)er than"
    " (the|this|what|any|allow|permit|support)",
    r"\<(prompt|input|conversation|request)s? of (this|that|such) (length|size)",
    r"\<(shorten|trim|reduce) ((the|your) )?(length of ((the|your) )?)?(prompt|input|conversation|messages|history)",
    r"\<tokens?~limit~(is~)?(exceeded|reached)|(?m:^tokens?~limit$)",
    r"\<tokens (of )?\d[\d,]* ((was|is) )?exceeded",
)

# Sayings in which one of those words means something else.
_OTHER_MEANING: Final = _words(r"\<input should (be|match|have) (?!\[)|extra inputs|input~validation~error")

# Fields that are no part of the conversation.
_FIELD: Final = _words(
    r"\<stop~(seq|words?\>|strings?\>|'|`|:)",
    r"metadata|safety~identifier|json~schema|\<(urls?|property|properties)\>|\<header",
    r"string~(too~long|above)|array~(too~long|above)|\<in batch\>",
    r"\<(name|title|id|key|label|tag)s? (is |was )?too (long|large)",
    r"(tool|function|file|parameter)s?[ '`.\w\[\]]{0,30}[ .](name|description)s?\>",
    r"too many (texts|tools|documents|inputs|messages|functions)\>",
)

_CAMEL: Final = re.compile(r"(?<=[a-z])(?=[A-Z][a-z])")
_SENTENCES: Final = re.compile(r"(?<=[.!?;])\s+|(?<=。)|\n+")


def plain(text: str) -> str:
    """The text with one form for each character, and `camelCase` as `camel_Case`."""
    return _CAMEL.sub("_", unicodedata.normalize("NFKC", text))


def counts_tokens(text: str) -> bool:
    """Whether tokens or a window are what is spoken of."""
    return _TOKENS.search(text) is not None or _WINDOW.search(text) is not None


def names_input(text: str) -> bool:
    """Whether the prompt, or the window it must fit into, is spoken of."""
    text = _OTHER_MEANING.sub(" ", text)
    return _PROMPT.search(text) is not None or _WINDOW.search(text) is not None


def names_field(text: str) -> bool:
    """Whether one field of the request is spoken of that is no part of the conversation: a name, a stop sequence."""
    return _FIELD.search(text) is not None


def states_limit(text: str) -> bool:
    """Whether anything is said to be beyond a limit, or to have to stay below one."""
    return _BEYOND.search(text) is not None or _MUST_STAY_BELOW.search(text) is not None


def says_too_long(text: str) -> bool:
    """Whether `text`, made `plain`, says that there was more input than the model takes."""
    text = _OTHER_MEANING.sub(" ", text)
    if _TOO_LONG_AS_SUCH.search(text):
        return True
    sentences = [sentence for sentence in _SENTENCES.split(text) if sentence.strip()]
    # What is measured and that it is too much may be said in two sentences, hardly in three.
    return any(_has_the_shape(" ".join(sentences[at : at + 2])) for at in range(len(sentences)))


def _has_the_shape(said: str) -> bool:
    has_tokens, has_window = _TOKENS.search(said) is not None, _WINDOW.search(said) is not None
    has_input = _INPUT.search(said) is not None
    if _BEYOND.search(said):
        return has_window or (has_input and (has_tokens or _ALLOWED_LENGTH.search(said) is not None))
    if _MUST_STAY_BELOW.search(said):
        has_number = re.search(r"\d", said) is not None
        return (has_window and (has_tokens or has_number)) or (has_tokens and has_input)
    return False
