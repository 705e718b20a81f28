"""What is known of models, read from litellm's data file without importing litellm."""

from __future__ import annotations

import subprocess
import sys

import pytest

from agent_session import Model, ModelCost
from agent_session.catalogue import completed

# (id, window, input, output, reasoning, images, input price, output price, cache read price), from the data file of
# litellm 1.110; a release that says otherwise changes this table on purpose.
GOLDEN = [
    ("openai/gpt-5-mini", 400_000, 272_000, 128_000, True, True, 0.25, 2.0, 0.025),
    ("openai/gpt-4o", 128_000, 128_000, 16_384, False, True, 2.5, 10.0, 1.25),
    ("openai/gpt-4.1-mini", 1_047_576, 1_047_576, 32_768, False, True, 0.4, 1.6, 0.1),
    ("openai/o3", 200_000, 200_000, 100_000, True, True, 2.0, 8.0, 0.5),
    ("anthropic/claude-sonnet-4-5", 200_000, 200_000, 64_000, True, True, 3.0, 15.0, 0.3),
    ("anthropic/claude-opus-4-5", 200_000, 200_000, 64_000, True, True, 5.0, 25.0, 0.5),
    ("anthropic/claude-haiku-4-5", 200_000, 200_000, 64_000, True, True, 1.0, 5.0, 0.1),
    ("gemini/gemini-2.5-pro", 1_048_576, 1_048_576, 65_536, True, True, 1.25, 10.0, 0.125),
    ("gemini/gemini-2.5-flash", 1_048_576, 1_048_576, 65_536, True, True, 0.3, 2.5, 0.03),
    ("mistral/mistral-large-latest", 262_144, 262_144, 262_144, False, True, 0.5, 1.5, 0.05),
    ("deepseek/deepseek-chat", 131_072, 131_072, 8_192, False, False, 0.28, 0.42, 0.028),
    ("azure/gpt-4o", 128_000, 128_000, 16_384, False, True, 2.5, 10.0, 1.25),
    ("bedrock/anthropic.claude-3-5-sonnet-20240620-v1:0", 200_000, 200_000, 4_096, False, True, 3.0, 15.0, 0.3),
    ("fireworks_ai/accounts/fireworks/models/deepseek-v3", 131_072, 131_072, 8_192, False, False, 0.9, 0.9, 0.9),
    ("anthropic/claude-opus-4-7", 1_000_000, 1_000_000, 128_000, True, True, 5.0, 25.0, 0.5),
    ("openai/gpt-5.1", 400_000, 272_000, 128_000, True, True, 1.25, 10.0, 0.125),
    ("vertex_ai/claude-sonnet-4-5", 200_000, 200_000, 64_000, True, True, 3.0, 15.0, 0.3),
    ("bedrock/us.anthropic.claude-sonnet-4-5-20250929-v1:0", 200_000, 200_000, 64_000, True, True, 3.3, 16.5, 0.33),
    ("vertex_ai/gemini-2.5-pro", 1_048_576, 1_048_576, 65_535, True, True, 1.25, 10.0, 0.125),
    ("ollama/llama3", 8_192, 8_192, 8_192, False, False, 0.0, 0.0, 0.0),
]


@pytest.mark.parametrize("row", GOLDEN, ids=lambda row: row[0])
def test_the_numbers_of_a_known_model(row: tuple[str, int, int, int, bool, bool, float, float, float]) -> None:
    # Mutation: in `_record` look under the plain name first, or leave the provider's check out.
    name, window, max_input, output, reasoning, images, fresh, answer, cached = row
    model = completed(Model(name))
    assert (model.context_window, model.max_input_tokens, model.max_output_tokens) == (window, max_input, output)
    assert (model.reasoning, model.images) == (reasoning, images)
    assert model.cost is not None
    assert (model.cost.input, model.cost.output, model.cost.cache_read) == (fresh, answer, cached)


@pytest.mark.parametrize("name", ["nobody/nothing", "anthropic/gpt-4o", "openai/claude-sonnet-4-5"])
def test_nothing_is_made_up_for_a_model_nobody_knows(name: str) -> None:
    # Mutation: in `_record` take the entry under the plain name whoever's it is.
    assert completed(Model(name)) == Model(name)


def test_what_was_given_is_not_overridden() -> None:
    # Mutation: in `completed` prefer the record.
    given = Model("openai/gpt-4o", context_window=1_000, cost=ModelCost(input=1.0))
    model = completed(given)
    assert (model.context_window, model.cost) == (1_000, ModelCost(input=1.0))
    assert model.max_output_tokens == 16_384


def test_a_look_into_the_catalogue_does_not_import_litellm() -> None:
    # Mutation: import litellm for the file's place.
    program = (
        "import sys; from agent_session.catalogue import completed; from agent_session import Model; "
        "completed(Model('openai/gpt-4o')); sys.exit('litellm' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
