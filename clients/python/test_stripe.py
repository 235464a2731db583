"""Stripe's client makes a key for each call and repeats calls by itself: one effect and one key come of it all the same."""

import pytest
import stripe
from conftest import header

KEY = "sk_test_not_a_real_key"
ROUTE = "POST /v1/payment_intents"
INTENT = {"id": "pi_1", "object": "payment_intent", "amount": 500, "currency": "eur", "status": "succeeded"}
PARAMS = {"amount": 500, "currency": "eur"}

ANSWER = {"effect": {"name": "payment"}, "body": INTENT, "headers": {"Request-Id": "req_1"}}
DROPPED = {**ANSWER, "fault": {"at": "after_commit", "end": "rst"}}


@pytest.fixture
def world(start_provider, start_gateway):
    """A provider that honours keys as Stripe does and answers so in turn, and a gateway before it."""

    def make(*answers, repeated=None):
        honours = {"header": "Idempotency-Key", "retention_ms": 24 * 3600 * 1000}
        if repeated:
            honours["repeated"] = repeated
        provider = start_provider({"routes": [{"match": ROUTE, "then": list(answers), "idempotency": honours}]})
        gateway = start_gateway(
            {
                "providers": {"stripe": {"base_url": provider.url}},
                "backoff": {"base_ms": 100, "cap_ms": 500, "floor_ms": 100},
            }
        )
        return provider, gateway

    return make


def client(gateway, **options):
    """As it comes: it repeats a call twice, under a key of its own."""
    return stripe.StripeClient(KEY, base_addresses={"api": f"{gateway.url}/stripe"}, **options)


def keys(arrivals):
    return {header(arrival, "idempotency-key") for arrival in arrivals}


def test_a_drop_after_the_commit_is_one_payment(world):
    provider, gateway = world({**DROPPED, "times": 1}, ANSWER)
    intent = client(gateway).v1.payment_intents.create(PARAMS)
    assert (intent.id, intent.amount) == ("pi_1", 500)
    assert intent.last_response.headers["forbear-attempts"] == "2"
    arrivals = provider.arrivals()
    assert len(arrivals) == 2, "the gateway repeated it, the client did not"
    (key,) = keys(arrivals)
    assert key and not key.startswith("fb1-"), "the client's own key goes on as it is"
    assert provider.effects()["count"] == 1


def test_what_the_exception_says_when_no_answer_comes(world):
    provider, gateway = world(DROPPED, repeated={"fault": {"at": "after_body", "end": "rst"}})
    with pytest.raises(stripe.APIError) as caught:
        client(gateway).v1.payment_intents.create(PARAMS)
    error = caught.value
    assert error.http_status == 422
    assert error.json_body["error"]["code"] == "outcome_unknown"
    for said in ("effect unknown", "call_again_with_same_key", "look_up_at_provider", "action act_"):
        assert said in error.user_message, error.user_message
    assert error.headers["stripe-should-retry"] == "false"
    assert error.json_body["type"] == "/-/problems/outcome_unknown"
    arrivals = provider.arrivals()
    # Those of the class `idempotent_write`, and none of the client's two.
    assert len(arrivals) == int(error.headers["forbear-attempts"])
    assert len(keys(arrivals)) == 1
    assert provider.effects()["count"] == 1


def test_a_client_that_loses_patience_gets_the_answer_of_its_first_call(world):
    provider, gateway = world({**ANSWER, "delay_ms": 3000})
    # It gives up after two seconds and comes back within half a second, while the first answer is still awaited.
    impatient = stripe.RequestsClient(timeout=2)
    intent = client(gateway, http_client=impatient, max_network_retries=5).v1.payment_intents.create(PARAMS)
    assert intent.id == "pi_1"
    assert intent.last_response.headers["forbear-joined"] == "same_key"
    assert len(provider.arrivals()) == 1
    assert provider.effects()["count"] == 1


def test_a_key_with_other_content_is_refused_here(world):
    provider, gateway = world(ANSWER)
    options = {"idempotency_key": "order-7"}
    client(gateway).v1.payment_intents.create(PARAMS, options)
    with pytest.raises(stripe.APIError) as caught:
        client(gateway).v1.payment_intents.create({**PARAMS, "amount": 501}, options)
    assert (caught.value.http_status, caught.value.json_body["error"]["code"]) == (422, "key_mismatch")
    assert len(provider.arrivals()) == 1


def test_equal_calls_that_are_meant_to_be_equal_are_two(world):
    provider, gateway = world(ANSWER)
    for _ in range(2):
        client(gateway).v1.payment_intents.create(PARAMS)
    assert provider.effects()["count"] == 2
    assert len(keys(provider.arrivals())) == 2
