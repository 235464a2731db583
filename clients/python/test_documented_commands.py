"""Runs the commands that the documentation marks with ```sh test (see README.md beside this file)."""

import os
import re
import subprocess
from pathlib import Path

import pytest
from kits import KITS

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```sh test[ \t]*\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
EXPECTED = re.compile(r"^# => (.+?)\s*$", re.MULTILINE)
DOCUMENTED_ADDRESS = "127.0.0.1:8429"
BLOCK_SECONDS_MAX = 60


def blocks_in(text):
    """Each marked block with the line that it starts on."""
    return [(text.count("\n", 0, found.start()) + 1, found.group(1)) for found in BLOCK.finditer(text)]


def documented():
    files = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    for file in filter(Path.is_file, files):
        for line, block in blocks_in(file.read_text()):
            yield pytest.param(block, id=f"{file.relative_to(ROOT)}:{line}")


# Any call that a page shows gets an answer; the known ones get their provider's.
ROUTES = [
    {"match": kit.route, "when": {"body": {"/stream": True}}, "respond": {"events": kit.events()}} for kit in KITS.values()
]
ROUTES += [{"match": kit.route, "respond": kit.answer} for kit in KITS.values()]
ROUTES += [{"match": "* /{rest...}", "respond": {"body": {"object": "list", "data": []}}}]
PROVIDERS = ["openai", "anthropic", "stripe", "github"]


def test_marked_blocks_are_found_with_their_lines():
    text = "a\n```sh test\ncurl x\n# => y\n```\n```sh\nnot this\n```\n```sh test\nls\n```\n"
    assert blocks_in(text) == [(2, "curl x\n# => y\n"), (9, "ls\n")]
    assert EXPECTED.findall("curl x\n# => HTTP/1.1 200 OK \n# other\n") == ["HTTP/1.1 200 OK"]


def test_the_readme_marks_its_commands():
    assert blocks_in((ROOT / "README.md").read_text()), "README.md shows no command that is tested"


@pytest.mark.parametrize("block", list(documented()))
def test_a_documented_block(block, forbear, start_provider, start_gateway, tmp_path):
    provider = start_provider({"routes": ROUTES})
    gateway = start_gateway({"providers": {name: {"base_url": provider.url} for name in PROVIDERS}})
    environment = {
        **os.environ,
        "PATH": f"{forbear.parent}{os.pathsep}{os.environ['PATH']}",
        "FORBEAR_DATA": str(gateway.data),
        "OPENAI_API_KEY": "sk-test",
        "ANTHROPIC_API_KEY": "sk-test",
    }
    block = block.replace(DOCUMENTED_ADDRESS, gateway.url.removeprefix("http://"))
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block],
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=BLOCK_SECONDS_MAX,
    )
    assert done.returncode == 0, done.stdout
    for expected in EXPECTED.findall(block):
        assert expected in done.stdout, done.stdout
