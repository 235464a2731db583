"""What is special about each client: how it is made and called, and what its provider answers."""

import anthropic
import openai

WORDS = ["Wait", " your", " turn", "."]
TEXT = "".join(WORDS)
KEY = "sk-test-not-a-real-key"


class OpenAI:
    provider = "openai"
    route = "POST /v1/chat/completions"
    agent = "OpenAI/Python"
    errors = openai

    refusal = {"error": {"message": "Slow down.", "type": "requests", "param": None, "code": "rate_limit_exceeded"}}
    answer = {
        "body": {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1764500000,
            "model": "gpt-test",
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": TEXT, "refusal": None},
                    "logprobs": None,
                    "finish_reason": "stop",
                }
            ],
            "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7},
        }
    }

    @staticmethod
    def _chunk(delta, finish_reason=None):
        return {
            "data": {
                "id": "chatcmpl-1",
                "object": "chat.completion.chunk",
                "created": 1764500000,
                "model": "gpt-test",
                "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}],
            }
        }

    @classmethod
    def events(cls):
        words = [cls._chunk({"content": word}) for word in WORDS]
        return [cls._chunk({"role": "assistant", "content": ""}), *words, cls._chunk({}, "stop"), {"raw": "data: [DONE]\n\n"}]

    # Events before the first word.
    events_before_words = 1

    def __init__(self, gateway_url):
        self.client = openai.OpenAI(api_key=KEY, base_url=f"{gateway_url}/openai/v1")

    _call = {"model": "gpt-test", "messages": [{"role": "user", "content": "May I?"}]}

    def ask(self):
        """The text and the headers of one plain call."""
        raw = self.client.chat.completions.with_raw_response.create(**self._call)
        return raw.parse().choices[0].message.content, raw.headers

    def stream(self):
        """The words of one streamed call, as they come."""
        for chunk in self.client.chat.completions.create(**self._call, stream=True):
            if chunk.choices and chunk.choices[0].delta.content:
                yield chunk.choices[0].delta.content


class Anthropic:
    provider = "anthropic"
    route = "POST /v1/messages"
    agent = "Anthropic/Python"
    errors = anthropic

    refusal = {"type": "error", "error": {"type": "rate_limit_error", "message": "Slow down."}}
    _message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-test",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 3, "output_tokens": 0},
    }
    answer = {
        "body": {
            **_message,
            "content": [{"type": "text", "text": TEXT}],
            "stop_reason": "end_turn",
            "usage": {"input_tokens": 3, "output_tokens": 4},
        }
    }

    @classmethod
    def events(cls):
        def named(kind, **members):
            return {"event": kind, "data": {"type": kind, **members}}

        return [
            named("message_start", message=cls._message),
            named("content_block_start", index=0, content_block={"type": "text", "text": ""}),
            *[named("content_block_delta", index=0, delta={"type": "text_delta", "text": word}) for word in WORDS],
            named("content_block_stop", index=0),
            named("message_delta", delta={"stop_reason": "end_turn", "stop_sequence": None}, usage={"output_tokens": 4}),
            named("message_stop"),
        ]

    events_before_words = 2

    def __init__(self, gateway_url):
        self.client = anthropic.Anthropic(api_key=KEY, base_url=f"{gateway_url}/anthropic")

    _call = {"model": "claude-test", "max_tokens": 16, "messages": [{"role": "user", "content": "May I?"}]}

    def ask(self):
        """The text and the headers of one plain call."""
        raw = self.client.messages.with_raw_response.create(**self._call)
        return raw.parse().content[0].text, raw.headers

    def stream(self):
        """The words of one streamed call, as they come."""
        for event in self.client.messages.create(**self._call, stream=True):
            if event.type == "content_block_delta":
                yield event.delta.text


KITS = {kit.provider: kit for kit in (OpenAI, Anthropic)}
