"""boto3 and slack_sdk: with their retries as they come, the provider sees no more sends than the gateway's policy makes."""

import boto3
import botocore.exceptions
import pytest
import slack_sdk
from conftest import header

FAST = {"backoff": {"base_ms": 50, "cap_ms": 200, "floor_ms": 50}}
TABLE = {"Table": {"TableName": "t", "TableStatus": "ACTIVE"}}
THROTTLED = {"__type": "com.amazonaws.dynamodb.v20120810#ThrottlingException", "message": "Rate exceeded"}


@pytest.fixture
def world(start_provider, start_gateway):
    def make(name, route, *answers, **contract):
        provider = start_provider({"routes": [{"match": route, "then": list(answers)}]})
        return provider, start_gateway({"providers": {name: {"base_url": provider.url, **contract}}, **FAST})

    return make


def tables(gateway):
    """What checks no signature: a stand-in as developers run it, by a name of the configuration's own."""
    return boto3.client(
        "dynamodb",
        endpoint_url=f"{gateway.url}/tables",
        region_name="eu-west-1",
        aws_access_key_id="AKIDEXAMPLE",
        aws_secret_access_key="not-a-real-secret",
    )


def describe(gateway):
    return tables(gateway).describe_table(TableName="t")["Table"]["TableStatus"]


READS = {"routes": [{"match": "POST /", "class": "read"}]}


def test_boto3_repeats_nothing_that_the_gateway_repeated(world):
    down = {"status": 503, "body": {"message": "down"}, "times": 1}
    provider, gateway = world("tables", "POST /", down, {"body": TABLE}, **READS)
    assert describe(gateway) == "ACTIVE"
    arrivals = provider.arrivals()
    assert len(arrivals) == 2
    assert ["attempt=1" in header(arrival, "amz-sdk-request") for arrival in arrivals] == [True, True]


def test_what_boto3_sends_again_is_answered_here(world):
    provider, gateway = world("tables", "POST /", {"status": 500, "body": {"message": "down"}}, **READS)
    with pytest.raises(botocore.exceptions.ClientError) as caught:
        describe(gateway)
    metadata = caught.value.response["ResponseMetadata"]
    assert metadata["RetryAttempts"] > 0, "it heeds no header that tells it not to"
    assert metadata["HTTPHeaders"]["forbear-joined"] == "marked_repeat"
    assert len(provider.arrivals()) == int(metadata["HTTPHeaders"]["forbear-attempts"]) == 4


def test_two_equal_calls_of_boto3_are_two(world):
    provider, gateway = world("tables", "POST /", {"body": TABLE}, **READS)
    client = tables(gateway)
    for _ in range(2):
        client.describe_table(TableName="t")
    assert len({header(arrival, "amz-sdk-invocation-id") for arrival in provider.arrivals()}) == 2


def post(gateway):
    client = slack_sdk.WebClient(token="xoxb-not-a-real-token", base_url=f"{gateway.url}/slack/api/")
    return client.chat_postMessage(channel="C1", text="hello")


def test_a_message_whose_answer_was_lost_is_posted_once(world):
    lost = {"effect": {"name": "message"}, "body": {"ok": True}, "fault": {"at": "after_commit", "end": "rst"}}
    provider, gateway = world("slack", "POST /api/chat.postMessage", lost)
    with pytest.raises(slack_sdk.errors.SlackApiError) as caught:
        post(gateway)
    answer = caught.value.response
    assert (answer.status_code, answer["type"]) == (422, "/-/problems/outcome_unknown")
    assert (answer["ok"], answer["error"]) == (False, "outcome_unknown"), "what the client's own error shows"
    assert (len(provider.arrivals()), provider.effects()["count"]) == (1, 1)
