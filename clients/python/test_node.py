"""The clients of Node: with their retries as they come, the provider sees no more sends than the gateway's policy makes."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import header
from kits import OpenAI

CALL_SECONDS_MAX = 90
FAST = {"backoff": {"base_ms": 50, "cap_ms": 200, "floor_ms": 50}}

ISSUE = {"number": 1, "title": "once"}
LIMITED = {
    "status": 403,
    "headers": {"Retry-After": "3600"},
    "body": {"message": "You have exceeded a secondary rate limit. Please wait.", "documentation_url": ""},
}


@pytest.fixture(scope="session")
def node():
    """What runs one call of a Node client; the clients lie where `cargo xtask test` installs them."""
    home = os.environ.get("FORBEAR_NODE_CLIENTS")
    if not home:
        pytest.exit("FORBEAR_NODE_CLIENTS names no directory; run these as `cargo xtask test --only clients`", returncode=2)
    script = Path(home, "client.mjs")
    shutil.copyfile(Path(__file__).parent.parent / "node" / "client.mjs", script)

    def call(name, gateway):
        run = subprocess.run(
            ["node", script, name, gateway.url],
            capture_output=True,
            text=True,
            timeout=CALL_SECONDS_MAX,
            env={name: value for name, value in os.environ.items() if "proxy" not in name.lower()},
        )
        assert run.returncode == 0, run.stderr
        return json.loads(run.stdout)

    return call


@pytest.fixture
def world(start_provider, start_gateway):
    def make(name, route, *answers):
        provider = start_provider({"routes": [{"match": route, "then": list(answers)}]})
        return provider, start_gateway({"providers": {name: {"base_url": provider.url}}, **FAST})

    return make


def test_octokit_does_not_repeat_a_refusal_of_an_hour(node, world):
    provider, gateway = world("github", "GET /repos/o/r", LIMITED)
    got = node("octokit-get", gateway)
    assert got["error"] == "HttpError", got
    assert got["body"]["type"].startswith("/-/problems/"), got
    assert got["body"]["message"], "the member that octokit's own error shows"
    assert len(provider.arrivals()) == 1


def test_octokit_waits_no_longer_than_the_gateway_does(node, world):
    refused = {"status": 503, "body": {"message": "Unavailable"}, "times": 1}
    provider, gateway = world("github", "GET /repos/o/r", refused, {"body": {"id": 7}})
    assert node("octokit-get", gateway) == {"value": {"id": 7}}
    assert len(provider.arrivals()) == 2, "the gateway repeated it, octokit did not"


def test_octokit_makes_an_issue_once_whose_answer_was_lost(node, world):
    lost = {"effect": {"name": "issue"}, "body": ISSUE, "fault": {"at": "after_commit", "end": "rst"}}
    provider, gateway = world("github", "POST /repos/o/r/issues", lost)
    got = node("octokit-create", gateway)
    assert (got["error"], got["status"]) == ("HttpError", 422), got
    assert got["body"]["type"] == "/-/problems/outcome_unknown"
    assert (len(provider.arrivals()), provider.effects()["count"]) == (1, 1)


def test_octokits_pages_stay_inside(node, start_provider, start_gateway):
    # The provider's own port is known only once it runs: the pages are named by another host of its contract.
    page = "http://api.github.com/repositories/1/issues?page=2"
    first = {"headers": {"Link": f'<{page}>; rel="next", <{page}>; rel="last"'}, "body": [{"number": 1}]}
    provider = start_provider(
        {
            "routes": [
                {"match": "GET /repos/o/r/issues", "respond": first},
                {"match": "GET /repositories/1/issues", "respond": {"body": [{"number": 2}]}},
            ]
        }
    )
    hosts = {"base_url": provider.url, "hosts": ["api.github.com"]}
    gateway = start_gateway({"providers": {"github": hosts}, **FAST})
    assert node("octokit-pages", gateway) == {"value": [1, 2]}
    assert [arrival["target"] for arrival in provider.arrivals()] == ["/repos/o/r/issues", "/repositories/1/issues?page=2"]


def test_the_ai_package_gets_its_answer_after_one_wait(node, world):
    refused = {"status": 429, "headers": {"Retry-After": "1"}, "body": OpenAI.refusal, "times": 1}
    provider, gateway = world("openai", OpenAI.route, refused, OpenAI.answer)
    assert node("ai", gateway) == {"value": OpenAI.answer["body"]["choices"][0]["message"]["content"]}
    first, second = provider.arrivals()
    assert second["at_ns"] - first["head_written_at_ns"] >= 1_000_000_000
    assert header(second, "authorization"), "it goes on with its credential"


def test_the_ai_package_repeats_nothing_while_the_scope_is_closed(node, world):
    refused = {"status": 429, "headers": {"Retry-After": "3600"}, "body": OpenAI.refusal}
    provider, gateway = world("openai", OpenAI.route, refused)
    got = node("ai", gateway)
    # It heeds no header: what it sends again ends here.
    assert got["error"] in ("AI_RetryError", "AI_APICallError"), got
    assert len(provider.arrivals()) == 1
