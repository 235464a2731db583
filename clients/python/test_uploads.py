"""An upload that its client makes again: each time under a new boundary, and one write all the same."""

from conftest import header
from kits import OpenAI

FILE = {
    "id": "file-1",
    "object": "file",
    "bytes": 22,
    "created_at": 1764500000,
    "filename": "batch.jsonl",
    "purpose": "batch",
    "status": "processed",
}


def test_an_upload_that_its_client_makes_again_is_one_write(start_provider, start_gateway):
    # Longer than the client waits, and shorter than its wait, its pause and its wait again.
    slow = {"effect": {"name": "file"}, "delay_ms": 1800, "body": FILE}
    provider = start_provider({"routes": [{"match": "POST /v1/files", "respond": slow}]})
    gateway = start_gateway({"providers": {"openai": {"base_url": provider.url}}})
    client = OpenAI(gateway.url).client.with_options(timeout=1.0, max_retries=2)
    raw = client.files.with_raw_response.create(file=("batch.jsonl", b'{"custom_id": "one"}\n'), purpose="batch")
    assert raw.parse().id == "file-1"
    assert raw.http_request.headers["x-stainless-retry-count"] == "1"
    assert raw.headers["forbear-joined"] in ("marked_repeat", "first_left")
    (arrival,) = provider.arrivals()
    # The one that arrived is under another boundary than the one that was answered.
    assert header(arrival, "content-type") != raw.http_request.headers["content-type"]
    assert provider.effects()["count"] == 1
