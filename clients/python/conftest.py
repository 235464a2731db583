"""The lab's provider and the gateway, as processes, for one test each."""

import json
import os
import re
import subprocess
import threading
import time
import urllib.request
from collections import deque
from pathlib import Path

import pytest

# A proxy of the machine must not stand between a client and the gateway.
os.environ["NO_PROXY"] = os.environ["no_proxy"] = "127.0.0.1,localhost"

START_SECONDS_MAX = 30
STOP_SECONDS_MAX = 10
POLL_SECONDS = 0.02
LINES_KEPT_MAX = 200

ADDRESS = re.compile(r"http://[0-9A-Za-z.\[\]:-]+:\d+")
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def wait_until(condition, seconds, what):
    """The first true value of `condition`, or a failure that says what was waited for."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            pytest.fail(f"not within {seconds} s: {what}")
        time.sleep(POLL_SECONDS)


class Process:
    """A process of the binary that prints where it listens."""

    def __init__(self, *command, env=None, start_seconds_max=START_SECONDS_MAX):
        self.lines = deque(maxlen=LINES_KEPT_MAX)
        self.url = None
        self._process = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env={**os.environ, **(env or {})},
        )
        threading.Thread(target=self._read, daemon=True).start()
        wait_until(self._is_ready, start_seconds_max, f"an address from {command[1:]}, which said {list(self.lines)}")

    def _read(self):
        for line in self._process.stdout:
            self.lines.append(line.rstrip())
            found = ADDRESS.search(line)
            if found and not self.url:
                self.url = found.group(0)

    def _is_ready(self):
        if self.url is None and self._process.poll() is not None:
            pytest.fail(f"{self._process.args} ended with {self._process.returncode}: {list(self.lines)}")
        return self.url

    def stop(self):
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Provider(Process):
    """The lab's provider, which counts what arrives."""

    def arrivals(self):
        """Requests in the order in which their first bytes were read."""
        with DIRECT.open(f"{self.url}/__lab/arrivals", timeout=10) as answer:
            records = [json.loads(line) for line in answer.read().splitlines() if line.strip()]
        return sorted((record for record in records if "method" in record), key=lambda record: record["at_ns"])

    def effects(self):
        with DIRECT.open(f"{self.url}/__lab/effects", timeout=10) as answer:
            return json.loads(answer.read())


def header(arrival, name):
    """A header field of an arrival, by its name in lower case."""
    return next((value for key, value in arrival["headers"] if key.lower() == name), None)


@pytest.fixture(scope="session")
def forbear():
    binary = os.environ.get("FORBEAR_BIN")
    if not binary:
        pytest.exit("FORBEAR_BIN names no binary; run these as `cargo xtask test --only clients`", returncode=2)
    return Path(binary).resolve()


@pytest.fixture
def start_provider(forbear, tmp_path):
    started = []

    def start(scenario):
        file = tmp_path / f"scenario-{len(started)}.yaml"
        file.write_text(json.dumps(scenario))  # JSON is YAML
        started.append(Provider(forbear, "lab", "provider", "--scenario", file, "--listen", "127.0.0.1:0"))
        return started[-1]

    yield start
    for provider in started:
        provider.stop()


@pytest.fixture
def start_gateway(forbear, tmp_path):
    started = []

    def start(config):
        file = tmp_path / f"forbear-{len(started)}.yaml"
        file.write_text(config if isinstance(config, str) else json.dumps(config))
        data = tmp_path / f"data-{len(started)}"
        command = [forbear, "serve", "--config", file, "--listen", "127.0.0.1:0", "--data", data]
        started.append(Process(*command, env={"XDG_DATA_HOME": str(tmp_path)}))
        started[-1].data = data
        return started[-1]

    yield start
    for gateway in started:
        gateway.stop()
