"""LiteLLM's proxy before and behind the gateway, with the configurations that docs/litellm.md shows: one logical call leads to
no more sends at the provider than the gateway's policy allows. Only `cargo xtask test --only litellm` runs these."""

import json
import re
import socket
import sys
from pathlib import Path

import openai
import pytest
from conftest import Process
from kits import KEY, TEXT, OpenAI

PAGE = Path(__file__).parents[2] / "docs" / "litellm.md"
BLOCK = re.compile(r"^```yaml (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# What the page's addresses stand for here.
FORBEAR, LITELLM, OPENAI = "http://127.0.0.1:8429", "http://127.0.0.1:4000", "https://api.openai.com"
MASTER_KEY = "sk-for-this-test-alone-0123456789abcdef"
START_SECONDS_MAX = 120
NS = 1_000_000_000
# Of an inference (`forbear.default.yaml`); the waits between them are short here.
ATTEMPTS = 4
FAST = {"backoff": {"base_ms": 50, "cap_ms": 200, "floor_ms": 50}}
# What LiteLLM makes of one failed call where nothing is said: itself, and two repeats.
LITELLM_SENDS = 3

QUOTA = {"message": "You exceeded your current quota, please check your plan.", "type": "insufficient_quota"}
BROKEN = {"message": "The server had an error.", "type": "server_error", "code": None}
# By what the agent says.
ANSWERS = {
    "plain": [OpenAI.answer],
    "soon": [{"status": 429, "headers": {"Retry-After": "2"}, "body": OpenAI.refusal, "times": 1}, OpenAI.answer],
    "broken": [{"status": 500, "body": {"error": BROKEN}}],
    "hour": [{"status": 429, "headers": {"Retry-After": "3600"}, "body": OpenAI.refusal}],
    "quota": [{"status": 429, "body": {"error": {**QUOTA, "code": "insufficient_quota"}}}],
}


def shown(name, **instead):
    """A configuration as the page has it, with the addresses of this test."""
    text = dict(BLOCK.findall(PAGE.read_text()))[name]
    for address, here in instead.items():
        assert globals()[address] in text
        text = text.replace(globals()[address], here)
    return text


def without_settings(config):
    """The same models and key, and everything else as LiteLLM has it where nothing is said."""
    return re.sub(r"^(router_settings|litellm_settings):\n(?:[ \n].*\n|\n)*", "", config, flags=re.MULTILINE)


def free_port():
    """A port that nobody listens on; LiteLLM takes 0 for none."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])


@pytest.fixture
def start_litellm(tmp_path):
    started = []

    def start(config):
        file = tmp_path / f"litellm-{len(started)}.yaml"
        file.write_text(config)
        program = Path(sys.executable).with_name("litellm")
        # It would ask the internet for prices: nothing leaves the machine.
        nowhere = {name: "http://127.0.0.1:9" for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")}
        quiet = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_TELEMETRY": "False"}
        started.append(
            Process(
                *(program, "--config", file, "--host", "127.0.0.1", "--port", free_port()),
                env={**nowhere, **quiet, "LITELLM_MASTER_KEY": MASTER_KEY, "OPENAI_API_KEY": KEY},
                start_seconds_max=START_SECONDS_MAX,
            )
        )
        return started[-1]

    yield start
    for proxy in started:
        proxy.stop()


@pytest.fixture
def provider(start_provider):
    when = {says: {"body": {"/messages/0/content": says}} for says in ANSWERS}
    routes = [{"match": OpenAI.route, "when": when[says], "then": then} for says, then in ANSWERS.items()]
    return start_provider({"routes": routes})


@pytest.fixture
def before(provider, start_gateway, start_litellm):
    """agent, LiteLLM, gateway, provider; by what the agent says, what came of it and the sends at the provider."""

    def make(change=lambda config: config):
        gateway = start_gateway({"providers": {"openai": {"base_url": provider.url}}, **FAST})
        proxy = start_litellm(change(shown("litellm-before", FORBEAR=gateway.url)))
        return lambda says, **more: ask(f"{proxy.url}/v1", MASTER_KEY, says, provider, **more)

    return make


@pytest.fixture
def behind(provider, start_gateway, start_litellm):
    """agent, gateway, LiteLLM, provider."""

    def make(change=lambda config: config):
        proxy = start_litellm(change(shown("litellm-behind", OPENAI=provider.url)))
        gateway = start_gateway(f"{shown('forbear-behind', LITELLM=proxy.url)}backoff: {json.dumps(FAST['backoff'])}\n")
        return lambda says: ask(f"{gateway.url}/litellm/v1", MASTER_KEY, says, provider)

    return make


def ask(url, key, says, provider, max_retries=0):
    """The text or the exception of one call, which the agent does not repeat but where it is said, and its sends."""
    known = len(sends(provider))
    client = openai.OpenAI(api_key=key, base_url=url, max_retries=max_retries)
    try:
        answer = client.chat.completions.create(model="gpt-test", messages=[{"role": "user", "content": says}])
        came = answer.choices[0].message.content
    except openai.APIStatusError as error:
        came = error
    return came, sends(provider)[known:]


def sends(provider):
    """Arrivals of calls; LiteLLM also asks each provider once for its models."""
    return [arrival for arrival in provider.arrivals() if f"{arrival['method']} {arrival['target']}" == OpenAI.route]


def assert_held(sent, seconds):
    first, second = sent
    assert second["at_ns"] - first["head_written_at_ns"] >= seconds * NS


def assert_as_often_as_its_policy_says(call):
    """What a broken provider came to is handed back."""
    came, sent = call("plain")
    assert (came, len(sent)) == (TEXT, 1)
    came, sent = call("soon")
    assert came == TEXT
    assert_held(sent, 2)
    came, sent = call("broken")
    assert (came.status_code, len(sent)) == (500, ATTEMPTS)
    return came


def test_before_the_gateway_every_call_is_sent_as_often_as_its_policy_says(before):
    call = before()
    came = assert_as_often_as_its_policy_says(call)
    assert "retry budget is used up" in str(came), "the agent is told by whom, and why"
    # LiteLLM keeps to itself that the call is not to be repeated, and the agent's client would.
    assert len(call("broken", max_retries=1)[1]) == 2 * ATTEMPTS
    came, sent = call("hour")
    assert (came.status_code, len(sent)) == (429, 1)
    came, sent = call("plain")
    assert (came.status_code, len(sent)) == (429, 0), "the account is closed for all"
    assert "next allowed at" in str(came)


def test_before_the_gateway_an_empty_account_is_asked_once(before):
    came, sent = before()("quota")
    assert (came.status_code, len(sent)) == (429, 1)


def test_before_the_gateway_without_settings_each_answer_is_asked_for_three_times(before):
    call = before(without_settings)
    assert [len(call(says)[1]) for says in ("plain", "broken")] == [1, LITELLM_SENDS * ATTEMPTS]
    # What closes the account is known after one.
    assert len(call("hour")[1]) == 1


def test_behind_the_gateway_every_call_is_sent_as_often_as_its_policy_says(behind):
    call = behind()
    assert_as_often_as_its_policy_says(call)
    came, sent = call("hour")
    assert (came.status_code, len(sent)) == (429, 1)
    assert came.response.headers["forbear-outcome"] in ("budget_exhausted", "deferred")
    came, sent = call("plain")
    assert (came.status_code, len(sent)) == (429, 0), "the account is closed for all"


def test_behind_the_gateway_an_empty_account_is_asked_once(behind):
    came, sent = behind()("quota")
    assert (came.status_code, len(sent)) == (429, 1)
    assert came.response.headers["forbear-outcome"] == "rejected"


def test_behind_the_gateway_without_settings_each_send_is_three(behind):
    call = behind(without_settings)
    assert [len(call(says)[1]) for says in ("plain", "broken")] == [1, LITELLM_SENDS * ATTEMPTS]
