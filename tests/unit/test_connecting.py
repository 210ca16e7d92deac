"""LIB-3, PRS-8: names of models, where keys come from, and how each kind of server tells its window."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from perdure.adapters.providers.connect import ModelName, connect, parse_name
from perdure.adapters.providers.offline import OfflineModel
from perdure.adapters.providers.openai import WindowProbe, window_of
from perdure.context.models import ModelSpec
from perdure.errors import BadSetting
from perdure.settings import Settings
from perdure.wiring import connect_models

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("anthropic:claude-x", ModelName("anthropic", "claude-x")),
        ("claude-sonnet-5-5", ModelName("anthropic", "claude-sonnet-5-5")),
        ("gpt-6-sol", ModelName("openai", "gpt-6-sol")),
        ("ollama:qwen3:8b", ModelName("ollama", "qwen3:8b")),
        ("openrouter:meta/llama", ModelName("openrouter", "meta/llama")),
        ("vllm:m@http://h:1/v1#K", ModelName("vllm", "m", "http://h:1/v1", "K")),
        ("offline", ModelName("offline", "offline")),
    ],
)
def test_names_are_taken_apart(name: str, expected: ModelName) -> None:
    assert parse_name(name) == expected


@pytest.mark.parametrize("name", ["", "what", "antropic:claude", "ollama:", "openai:m@nowhere"])
def test_a_name_that_names_nothing_is_refused(name: str) -> None:
    with pytest.raises(BadSetting):
        parse_name(name)


def test_a_missing_key_is_named_not_shown() -> None:
    with pytest.raises(BadSetting, match="set ANTHROPIC_API_KEY"):
        connect("anthropic:claude-x", {})
    with pytest.raises(BadSetting, match="set MINE"):
        connect("vllm:m#MINE", {"OPENAI_API_KEY": "secret"})


def test_local_servers_need_no_key() -> None:
    model = connect("ollama:qwen3", {})
    assert model.about.id == "qwen3" and model.about.protocol == "openai"
    assert "secret" not in repr(connect("openai:m", {"OPENAI_API_KEY": "secret"}).about)


def test_what_the_user_wrote_of_a_model_is_its_window() -> None:
    known = (ModelSpec(prefix="qwen3", window_tokens=32_000),)
    assert connect("ollama:qwen3:8b", {}, known=known).about.window_tokens == 32_000


def test_each_job_has_its_models_and_main_stands_in() -> None:
    settings = Settings(main_models=("ollama:a", "offline"), notes_models=("vllm:b", "ollama:a"))
    models = connect_models(settings, {})
    assert [m.about.id for m in models.of("main")] == ["a", "offline"]
    assert [m.about.id for m in models.of("notes")] == ["b", "a"]
    assert [m.about.id for m in models.of("summarizer")] == ["a"], "offline: from there on without a model"
    assert models.of("notes")[1] is models.of("main")[0], "one client for one name"
    anyio.run(models.close)


def test_without_key_and_names_there_is_the_offline_model() -> None:
    models = connect_models(Settings(), {})
    (main,) = models.of("main")
    assert isinstance(main, OfflineModel) and not models.of("summarizer")


SERVERS: list[tuple[str, dict[str, Any], int | None]] = [
    ("vLLM", {"/models": {"data": [{"id": "m", "max_model_len": 32_768}]}}, 32_768),
    ("OpenRouter", {"/models": {"data": [{"id": "x"}, {"id": "m", "context_length": 131_072}]}}, 131_072),
    (
        "llama.cpp",
        {
            "/models": {"data": [{"id": "gguf", "meta": {"n_ctx_train": 131_072}}]},
            "/props": {"default_generation_settings": {"n_ctx": 8_192}},
        },
        8_192,
    ),
    (
        "LM Studio",
        {"/models": {"data": [{"id": "m"}]}, "/api/v0/models": {"data": [{"id": "m", "loaded_context_length": 4_096}]}},
        4_096,
    ),
    (
        "Ollama, loaded",
        {"/models": {"data": [{"id": "m"}]}, "/api/ps": {"models": [{"name": "m:latest", "context_length": 16_384}]}},
        16_384,
    ),
    (
        "Ollama, set",
        {"/models": {"data": [{"id": "m"}]}, "/api/show": {"parameters": 'stop "x"\nnum_ctx    24576\n'}},
        24_576,
    ),
    (
        "Ollama, default",
        {"/models": {"data": [{"id": "m"}]}, "/api/show": {"model_info": {"qwen3.context_length": 40_960}}},
        4_096,
    ),
    ("nobody", {}, None),
    ("nonsense", {"/models": [1], "/props": "x", "/api/show": {"parameters": 7, "model_info": []}}, None),
]


@pytest.mark.parametrize(("name", "answers", "window"), SERVERS, ids=[name for name, _, _ in SERVERS])
def test_servers_tell_their_window(name: str, answers: dict[str, Any], window: int | None) -> None:
    async def ask(probe: WindowProbe) -> Any:
        return answers.get(probe.path)

    assert anyio.run(window_of, "m", ask) == window
