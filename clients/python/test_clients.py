"""Each promise over each client: what the client sees, and what the provider counted."""

import json
import os
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from conftest import header, wait_until
from kits import KITS, TEXT, WORDS

NS = 1_000_000_000
WORKER_SECONDS_MAX = 60


@pytest.fixture(params=KITS.values(), ids=KITS.keys())
def kit(request):
    return request.param


@pytest.fixture
def world(kit, start_provider, start_gateway):
    """A provider that gives these answers in turn, the last one for ever, and a gateway before it."""

    def make(*answers, **config):
        provider = start_provider({"routes": [{"match": kit.route, "then": list(answers)}]})
        gateway = start_gateway({"providers": {kit.provider: {"base_url": provider.url}}, **config})
        return provider, gateway

    return make


def refused(kit, retry_after):
    return {"status": 429, "headers": {"Retry-After": str(retry_after)}, "body": kit.refusal, "times": 1}


def assert_only_the_gateway_repeats(arrivals):
    """The clients count their own repeats in a header: it stays at 0."""
    assert [header(arrival, "x-stainless-retry-count") for arrival in arrivals] == ["0"] * len(arrivals)


def test_a_plain_call(kit, world):
    provider, gateway = world(kit.answer)
    text, headers = kit(gateway.url).ask()
    assert text == TEXT
    assert (headers["forbear-outcome"], headers["forbear-attempts"]) == ("succeeded", "1")
    (arrival,) = provider.arrivals()
    assert f"{arrival['method']} {arrival['target']}" == kit.route
    assert header(arrival, "user-agent").startswith(kit.agent), "the provider sees the client itself"
    assert not [name for name, _ in arrival["headers"] if name.lower().startswith("forbear-")]


def test_a_streamed_call_comes_as_it_is_sent(kit, world):
    gap_ms = 150
    provider, gateway = world({"events": kit.events(), "event_gap_ms": gap_ms})
    words, times = [], []
    for word in kit(gateway.url).stream():
        words.append(word)
        times.append(time.monotonic())
    assert words == WORDS
    # Gathered into one piece they would come at once.
    assert times[-1] - times[0] >= (len(WORDS) - 1) * gap_ms / 1000 * 0.6
    assert len(provider.arrivals()) == 1


def test_a_short_wait_is_the_gateways_not_the_clients(kit, world):
    retry_after = 2
    provider, gateway = world(refused(kit, retry_after), kit.answer)
    text, headers = kit(gateway.url).ask()
    assert text == TEXT
    assert headers["forbear-attempts"] == "2"
    assert int(headers["forbear-waited-ms"]) >= retry_after * 1000 - 100
    first, second = provider.arrivals()
    assert second["at_ns"] - first["head_written_at_ns"] >= retry_after * NS
    assert_only_the_gateway_repeats([first, second])


def test_a_short_wait_before_a_stream(kit, world):
    retry_after = 1
    provider, gateway = world(refused(kit, retry_after), {"events": kit.events()})
    assert list(kit(gateway.url).stream()) == WORDS
    first, second = provider.arrivals()
    assert second["at_ns"] - first["head_written_at_ns"] >= retry_after * NS
    assert_only_the_gateway_repeats([first, second])


@pytest.mark.parametrize(
    ("retry_after", "config"),
    [
        pytest.param(3600, {}, id="an hour, by default"),
        # Short enough that the clients would wait and repeat, were they not told.
        pytest.param(6, {"request_classes": {"inference": {"max_wait_seconds": 1}}}, id="six seconds, allowed one"),
    ],
)
def test_a_long_wait_is_said_at_once_and_not_repeated(kit, world, retry_after, config):
    provider, gateway = world(refused(kit, retry_after), kit.answer, **config)
    started = time.monotonic()
    with pytest.raises(kit.errors.RateLimitError) as caught:
        kit(gateway.url).ask()
    assert time.monotonic() - started < min(retry_after, 5)
    response = caught.value.response
    assert response.headers["x-should-retry"] == "false"
    assert response.headers["forbear-outcome"] in ("budget_exhausted", "deferred")
    assert caught.value.body, "the client's own exception carries the reason"
    assert len(provider.arrivals()) == 1


def test_two_processes_on_one_key_share_the_boundary(kit, world):
    retry_after = 4
    provider, gateway = world(refused(kit, retry_after), kit.answer)
    with ExitStack() as stack:
        first, second = (stack.enter_context(worker(kit, gateway)) for _ in range(2))
        for process in (first, second):
            assert process.stdout.readline().strip() == "ready"
        go(first)
        wait_until(lambda: any(a["head_written_at_ns"] for a in provider.arrivals()), 20, "the refusal of the first call")
        go(second)
        results = [json.loads(process.communicate(timeout=WORKER_SECONDS_MAX)[0]) for process in (first, second)]
    assert [result.get("text") for result in results] == [TEXT, TEXT], results
    # The second began within the closed window and was held to its end without a refusal of its own.
    assert results[1]["took_seconds"] > 1, results
    arrivals = provider.arrivals()
    assert [arrival["status"] for arrival in arrivals] == [429, 200, 200]
    boundary_ns = arrivals[0]["head_written_at_ns"] + retry_after * NS
    assert all(arrival["at_ns"] >= boundary_ns for arrival in arrivals[1:])
    assert arrivals[2]["at_ns"] > arrivals[1]["at_ns"], "they leave apart"
    assert_only_the_gateway_repeats(arrivals)


def test_a_client_that_is_less_patient_than_the_provider_is_told_to_repeat_nothing(kit, world):
    provider, gateway = world({**kit.answer, "delay_ms": 1500})
    impatient = kit(gateway.url)
    impatient.client = impatient.client.with_options(timeout=0.9)
    text, headers = impatient.ask()
    assert text == TEXT and headers["forbear-joined"] == "marked_repeat"
    assert "max_retries=0" in headers["forbear-advice"]
    assert len(provider.arrivals()) == 1, "the client's repeat is joined to its first send"
    said = [line for line in gateway.lines if "turn its retries off" in line]
    assert len(said) == 1 and "max_retries=0" in said[0], list(gateway.lines)
    text, headers = impatient.ask()
    assert text == TEXT and headers["forbear-joined"] == "marked_repeat"
    assert "forbear-advice" not in headers, "it is told once"


@pytest.mark.parametrize("end", ["fin", "rst"])
def test_a_cut_stream_reaches_the_client_as_cut(kit, world, end):
    shown = 2
    cut = {"at": "mid_stream", "after_events": kit.events_before_words + shown, "end": end}
    # The gap lets what was sent be read before a reset throws it away.
    provider, gateway = world({"events": kit.events(), "event_gap_ms": 200, "fault": cut})
    words = []
    with pytest.raises(Exception) as caught:
        for word in kit(gateway.url).stream():
            words.append(word)
    assert not isinstance(caught.value, AssertionError)
    assert words == WORDS[: len(words)] and 1 <= len(words) <= shown
    assert len(provider.arrivals()) == 1, "after the first content there is no other attempt"


def worker(kit, gateway):
    return subprocess.Popen(
        [sys.executable, Path(__file__).with_name("worker.py"), kit.provider, gateway.url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ,
    )


def go(process):
    process.stdin.write("go\n")
    process.stdin.flush()
