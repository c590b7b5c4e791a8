"""The commands of docs/guides/security.md, word for word: its three machines are three addresses of
this one's loopback.
"""

from __future__ import annotations

import json
import os
import re
import signal
import ssl
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import httpx
import pytest

from tests.kit.commands import settings
from tests.kit.little_issuer import CLIENT, SECRET, little_issuer
from tests.kit.machine import ROOT, free_port_base
from tests.kit.processes import NodeProcess

GUIDE = (ROOT / "docs" / "guides" / "security.md").read_text("utf-8")
READY_S = 90.0
STEPS = ("Certificates", "Nodes", "The first administrator", "Users", "Renewing")


def commands(title: str, base: int) -> str:
    """The indented lines of a section, for this machine."""
    section = GUIDE.split(f"\n## {title}\n")[1].split("\n## ")[0]
    lines = "\n".join(line[4:] for line in section.splitlines() if line.startswith("    "))
    assert lines, title
    for offset in range(4):
        lines = re.sub(rf"\b760{offset}\b", str(base + offset), lines)
    return lines.replace("10.0.0.", "127.0.0.")


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.timeout(600)
def test_the_guide(tmp_path: Path) -> None:
    """A cluster made by the guide's own lines does not start, lets in somebody whom it should not,
    or keeps out ann; or a certificate that was renewed is not shown without a restart.
    """
    base = free_port_base()
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "kvorum").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m kvorum "$@"\n')
    (tools / "kvorum").chmod(0o755)
    home = tmp_path / "home"
    home.mkdir()
    # The guide leaves the port out: it is the usual one, which may be taken here.
    env = settings(env={"PATH": f"{tools}:{os.environ['PATH']}", "KVORUM_PORT": str(base)})

    def run(*parts: str) -> str:
        ended = subprocess.run(
            ["bash", "-euc", "\n".join(parts)],
            cwd=home,
            env=env,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    steps = {title: commands(title, base) for title in STEPS}
    run(steps["Certificates"])
    nodes: list[subprocess.Popen[bytes]] = []
    try:
        for line in steps["Nodes"].splitlines():
            with (home / f"log{len(nodes)}").open("wb") as log:
                nodes.append(
                    subprocess.Popen(
                        ["bash", "-c", f"exec {line}"], cwd=home, env=env, stdout=log, stderr=log
                    )
                )
        for i in range(len(nodes)):
            wait(home, f"https://127.0.0.{i + 1}:{base + 2}/readyz")
        first, users = steps["The first administrator"], steps["Users"]
        told = run(first, users)
        assert "token  kvt_" in told
        assert told.count("tea") == 2, told
        assert told.count("ann\n") >= 2, told  # by `kvorum sql` and by psql
        door = f"--connect https://127.0.0.1:{base + 2}"
        stranger = f"KVORUM_CA=authority/ca.crt kvorum get shop/orders/1 {door}"
        for refused in (
            f"{stranger} 2>&1",
            f"KVORUM_CA=authority/ca.crt kvorum get shop/orders/1 --connect 127.0.0.1:{base} 2>&1",
            f"KVORUM_TLS_DIR=ann kvorum get a/b/c {door} 2>&1",
        ):
            assert re.search("UNAUTHENTICATED|FORBIDDEN|log in", run(f"{refused} || true")), refused
        before = shown(base)
        run(steps["Renewing"])
        assert shown(base) != before
        assert "Traceback" not in "".join(log.read_text() for log in home.glob("log*"))
    finally:
        for node in nodes:
            node.send_signal(signal.SIGTERM)
        for node in nodes:
            assert node.wait(READY_S) == 0


@pytest.mark.slow
def test_the_guides_issuer(tmp_path: Path) -> None:
    """A node that is started with the guide's settings offers no login by the issuer, or its users
    cannot send requests with the guide's command.
    """
    base, secret = free_port_base(), tmp_path / "console.secret"
    secret.write_text(SECRET)
    with little_issuer() as issuer:
        lines = commands("Users of an issuer (OIDC)", base)
        for said, here in (
            ("https://login.example/realms/shop", issuer.url),
            ("kvorum-console", CLIENT),
            ("console.secret", str(secret)),
            ("https://", "http://"),
            ("--cacert ca.crt ", ""),
        ):
            assert said in lines
            lines = lines.replace(said, here)
        *exports, curl = lines.splitlines()
        with NodeProcess(tmp_path / "data", base, before="; ".join(exports)) as node:
            node.start()
            url = f"http://127.0.0.1:{base + 2}"
            admin = httpx.post(f"{url}/v1/init").json()["token"]
            headers = {"authorization": f"Bearer {admin}"}
            assert httpx.post(f"{url}/v1/users", json={"name": "ann"}, headers=headers).is_success
            claims = {"iss": issuer.url, "aud": "kvorum", "preferred_username": "ann"}
            claims |= {"exp": int(time.time()) + 60}
            (tmp_path / "ann.jwt").write_text(issuer.signed(claims))
            told = subprocess.run(
                ["bash", "-euc", curl], cwd=tmp_path, capture_output=True, check=True, timeout=30
            )
            assert json.loads(told.stdout)["user"] == "ann"
            issuer.claims["preferred_username"] = "ann"
            with httpx.Client(base_url=url) as client:
                begin = client.get("/console/session").json()["issuer"]["begin"]
                back = httpx.get(client.get(begin).headers["location"]).headers["location"]
                assert client.get(back).status_code == 303
                assert client.get("/v1/whoami").json()["user"] == "ann"


def wait(home: Path, url: str) -> None:
    """Until a node is ready."""
    context = ssl.create_default_context(cafile=home / "authority" / "ca.crt")
    deadline = time.monotonic() + READY_S
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5, context=context):
                return
        except OSError as error:
            why = str(error)
        logs = "".join(log.read_text()[-2000:] for log in home.glob("log*"))
        assert time.monotonic() < deadline, f"{url}: {why}\n{logs}"
        time.sleep(0.1)


def shown(base: int) -> str:
    """The certificate that the first node shows."""
    return ssl.get_server_certificate(("127.0.0.1", base + 2), timeout=10)
