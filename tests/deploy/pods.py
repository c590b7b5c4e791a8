"""Pods without Kubernetes: each is a set of Linux namespaces, in which the image's root file system
runs as the StatefulSet says, under its names, variables, volumes, user and rights.

    network    a network namespace of the test's own with a bridge; clients run in it
    pod N      network, host name and mounts of its own; a new address whenever it is made anew;
               the container is process 1, sees a read-only file system, and may nothing
    DNS        one file of hosts that all of them see, of pods that exist

What of Kubernetes is played here: the pod's environment and volumes (with the links by which the
kubelet swaps secrets), probes over the network, SIGTERM and the time until SIGKILL, and the
StatefulSet's orders: all at once, and one by one from the last.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self

import psutil

from kv.base.tls import CA, NODE
from tests.deploy.statefulset import NAMESPACE, StatefulSet
from tests.kit.commands import Ended, settings
from tests.kit.machine import ROOT
from tests.kit.waiting import poll

_CHROOTS: Final = "--bounding-set=-all,+sys_chroot,+setuid,+setgid"  # and then it may not even that
READY_S: Final = 300.0
_GATEWAY: Final = "10.77.0.1"
_MAKE_NETWORK: Final = f"""
mount --bind "$HOSTS" /etc/hosts
ip link set lo up
ip link add name br0 type bridge
ip addr add {_GATEWAY}/16 dev br0
ip link set br0 up
"""
_MAKE_POD: Final = """
hostname "$POD"
mount -t overlay overlay -o lowerdir="$LAYER:$IMAGE" "$AT"
mount --bind "$HOSTS" "$AT/etc/hosts"
mount --bind "$DATA" "$AT/data"
mount --bind "$TLS" "$AT/tls"
mount -o remount,bind,ro "$AT/tls"
mount -t tmpfs -o mode=1777 tmp "$AT/tmp"
mount --rbind /dev "$AT/dev"
ip link set lo up
"""


def possible() -> str:
    """Why this machine cannot, or nothing."""
    if os.geteuid() != 0:
        return "only root makes network namespaces"
    tried = subprocess.run(
        ["unshare", "--net", "--mount", "--pid", "--fork", "ip", "link", "add", "type", "veth"],
        capture_output=True,
        text=True,
        check=False,
    )
    return tried.stderr


class Namespaces:
    """Held by a process that sleeps in them."""

    def __init__(self, script: str, *kinds: str, **variables: object) -> None:
        held = [_tool("unshare"), "--net", "--mount", *kinds, "sh", "-euc"]
        env = {**os.environ, **{name: str(value) for name, value in variables.items()}}
        self._holder = subprocess.Popen(
            [*held, f"{script}\necho made; exec sleep infinity"],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == b"made\n", "the namespaces were not made"

    @property
    def pid(self) -> int:
        return self._holder.pid

    def enter(self, *kinds: str) -> list[str]:
        """What starts a command in them."""
        return [_tool("nsenter"), "-t", str(self.pid), "--net", "--mount", *kinds, "--"]

    def end(self) -> None:
        self._holder.kill()
        self._holder.communicate()


def _tool(name: str) -> str:
    found = shutil.which(name)
    assert found is not None, name
    return found


class Pod:
    """From its making to its deletion; its container may be started more than once."""

    def __init__(self, pods: Pods, ordinal: int, address: str) -> None:
        self.name, self.address, self._pods = pods.set.pod_name(ordinal), address, pods
        self._at = pods.home / f"{self.name}-root"
        self._at.mkdir(exist_ok=True)
        self.log = pods.home / f"{self.name}.log"
        self._spaces = Namespaces(
            _MAKE_POD,
            *("--uts", "--ipc"),
            POD=self.name,
            AT=self._at,
            LAYER=pods.layer,
            IMAGE=pods.image,
            HOSTS=pods.hosts,
            DATA=pods.claim(ordinal),
            TLS=pods.tls,
        )
        pods.join(self._spaces.pid, address)
        self._env = pods.environment(ordinal)
        self._container: subprocess.Popen[bytes] | None = None

    def _inside(self, *words: str) -> list[str]:
        """A command of the image, as the container's user."""
        return [
            *self._spaces.enter("--uts", "--ipc"),
            *(_tool("unshare"), "--pid", "--fork", f"--mount-proc={self._at}/proc", "--"),
            *(_tool("setpriv"), "--no-new-privs", _CHROOTS, "--"),
            *(_tool("chroot"), f"--userspec={self._pods.user}", f"--groups={self._pods.group}"),
            *(str(self._at), *words),
        ]

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._container = subprocess.Popen(
                self._inside(*self._pods.set.container["command"]),
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def execute(self, *words: str) -> bytes:
        """`kubectl exec`."""
        done = subprocess.run(
            self._inside(*words), env=self._env, capture_output=True, check=False, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    @property
    def _process(self) -> psutil.Process:
        """Process 1 of the container."""
        assert self._container is not None
        (found,) = psutil.Process(self._container.pid).children()
        return found

    def kill(self) -> None:
        """Out of memory, say."""
        assert self._container is not None
        self._process.kill()
        self._container.wait()

    def ended(self) -> bool:
        assert self._container is not None
        return self._container.poll() is not None

    def status(self) -> dict[str, str]:
        """Who it is and what it may do, as the kernel says."""
        lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
        rows = (line.split()[:2] for line in lines if line.split()[1:])
        return {
            name[:-1]: text for name, text in rows if name in ("Uid:", "CapEff:", "NoNewPrivs:")
        }

    def certificate(self) -> bytes:
        """What it shows now."""
        asked = f"import ssl; print(ssl.get_server_certificate(('{self.address}', 7602)))"
        return subprocess.check_output(self._pods.clients(sys.executable, "-c", asked))

    def terminate(self) -> int:
        """SIGTERM, and its exit code; it must not need the SIGKILL that comes after the grace."""
        assert self._container is not None
        if not self.ended():
            self._process.send_signal(signal.SIGTERM)
        return self._container.wait(self._pods.set.pod["terminationGracePeriodSeconds"])

    def end(self) -> None:
        if self._container is not None and not self.ended():
            self.kill()  # itself: who changes his user does not die with his parent
        self._spaces.end()

    def probed(self, kind: str) -> bool:
        """What the kubelet asks, once."""
        asked = self._pods.set.container[f"{kind}Probe"]["httpGet"]
        port = self._pods.set.port(asked["port"])
        url = f"{asked['scheme'].lower()}://{self.address}:{port}{asked['path']}"
        curl = ["curl", "--silent", "--insecure", "--fail", "--output", "/dev/null"]
        words = [*curl, "--max-time", "3", url]
        return subprocess.run(self._pods.clients(*words), check=False).returncode == 0

    def tail(self) -> str:
        return self.log.read_text(errors="replace")[-4000:]


class Pods:
    """A StatefulSet, and those who ask it. `image`: the unpacked root file system."""

    def __init__(self, home: Path, image: Path, config: Mapping[str, Any], text: str) -> None:
        """`config`: the image's own; `text`: the manifests."""
        self.home, self.image, self._config = home, image, config
        self.set = StatefulSet(text)
        self._pods: dict[int, Pod] = {}
        self._made = 0
        security = self.set.pod["securityContext"]
        self.group = security["fsGroup"]
        self.user = f"{security['runAsUser']}:{security['runAsGroup']}"
        self.hosts = home / "hosts"
        self._write_hosts()
        self.layer = home / "layer"
        (self.layer / "etc").mkdir(parents=True)
        (self.layer / "etc" / "hosts").touch()
        self.tls = home / "tls"
        self._network = Namespaces(_MAKE_NETWORK, HOSTS=self.hosts)
        self._tokens: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for pod in self._pods.values():
            pod.end()
        self._network.end()

    # ---------------------------------------------------------------------------- what pods get

    def environment(self, ordinal: int) -> dict[str, str]:
        image = dict(variable.split("=", 1) for variable in self._config["Env"])
        return image | self.set.environment(ordinal, f"machine-{ordinal}")

    def claim(self, ordinal: int) -> Path:
        """The volume of a pod, as a new file system looks: somebody else's directory is in it."""
        at = self.home / f"data-{self.set.pod_name(ordinal)}"
        if not at.exists():
            at.mkdir()
            (at / "lost+found").mkdir(mode=0o700)
            os.chown(at, 0, self.group)
            at.chmod(0o2775)
        return at

    def delete_claim(self, ordinal: int) -> None:
        shutil.rmtree(self.claim(ordinal))

    def secret(self, files: Path) -> None:
        """What the kubelet makes of a secret, and of one that was replaced: all files at once."""
        (volume,) = (v["secret"] for v in self.set.pod["volumes"] if v["name"] == "tls")
        there = {"ca.crt": CA, "tls.crt": NODE[0], "tls.key": NODE[1]}
        self.tls.mkdir(exist_ok=True)
        version = f"..{len(list(self.tls.iterdir()))}"
        (self.tls / version).mkdir()
        for item in volume["items"]:
            file = self.tls / version / item["path"]
            file.write_bytes((files / there[item["key"]]).read_bytes())
            os.chown(file, 0, self.group)
            file.chmod(volume["defaultMode"])
            if not (self.tls / item["path"]).is_symlink():
                (self.tls / item["path"]).symlink_to(f"..data/{item['path']}")
        (self.tls / "..new").symlink_to(version)
        (self.tls / "..new").replace(self.tls / "..data")

    def join(self, pid: int, address: str) -> None:
        """A cable from a pod to the bridge."""
        self._made += 1
        name = f"pod{self._made}"
        cable = ["ip", "link", "add", "name", name, "type", "veth"]
        subprocess.run(self.clients(*cable, "peer", "name", "eth0", "netns", str(pid)), check=True)
        subprocess.run(self.clients("ip", "link", "set", name, "master", "br0", "up"), check=True)
        inside = [_tool("nsenter"), "-t", str(pid), "--net", "ip"]
        subprocess.run([*inside, "addr", "add", f"{address}/16", "dev", "eth0"], check=True)
        subprocess.run([*inside, "link", "set", "eth0", "up"], check=True)

    def _write_hosts(self) -> None:
        """Names of all pods, and the clients' service: those that are ready."""
        lines = ["127.0.0.1 localhost"]
        for ordinal, pod in self._pods.items():
            lines.append(f"{pod.address} {self.set.host(ordinal)}")
            if pod.probed("readiness"):
                lines.append(f"{pod.address} {self.set.name}-client.{NAMESPACE}.svc")
        self.hosts.write_text("\n".join(lines) + "\n")

    # ------------------------------------------------------------------------ the StatefulSet

    def __getitem__(self, ordinal: int) -> Pod:
        return self._pods[ordinal]

    def create(self, *ordinals: int) -> None:
        """All at once."""
        for ordinal in ordinals:
            address = f"10.77.{1 + self._made // 200}.{1 + self._made % 200}"
            self._pods[ordinal] = Pod(self, ordinal, address)
        self._write_hosts()
        for ordinal in ordinals:
            self._pods[ordinal].start()

    def wait(self, *ordinals: int) -> None:
        """Until they are ready."""
        for ordinal in ordinals:
            pod = self._pods[ordinal]
            poll(lambda pod=pod: pod.ended() or pod.probed("readiness"), READY_S)
            assert not pod.ended(), pod.tail()

    def delete(self, ordinal: int) -> int:
        """Its exit code. The claim stays."""
        code = self._pods[ordinal].terminate()
        self._pods.pop(ordinal).end()
        self._write_hosts()
        return code

    def roll(self) -> Iterator[int]:
        """What a changed template does from its partition on: one by one from the last, each when
        the one before is ready.
        """
        partition = self.set.spec["updateStrategy"]["rollingUpdate"]["partition"]
        for ordinal in sorted(self._pods, reverse=True):
            if ordinal >= partition:
                ended = self._pods[ordinal].ended()
                assert self.delete(ordinal) == 0 or ended
                self.create(ordinal)
                self.wait(ordinal)
                yield ordinal

    # ----------------------------------------------------------------------------- who asks it

    def clients(self, *words: str) -> list[str]:
        """A command of this machine, on the pods' network."""
        return [*self._network.enter(), *words]

    def url(self) -> str:
        return "kvorums://" + ",".join(f"{self.set.host(i)}:7600" for i in sorted(self._pods))

    def kvorum(self, *words: str, env: Mapping[str, str], code: int = 0) -> Any:
        """The JSON of a command of somebody elsewhere."""
        self._write_hosts()
        command = self.clients(sys.executable, "-m", "kvorum", *words, "--json")
        given = settings(f"https://{self.set.name}-client.{NAMESPACE}.svc:7602", env)
        done = subprocess.run(
            command, cwd=ROOT, env=given, capture_output=True, check=False, timeout=180
        )
        ended = Ended(done.returncode, done.stdout, done.stderr)
        assert ended.code == code, (words, ended)
        return ended.json if ended.out or code else None

    @contextmanager
    def running(self, *words: str, env: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
        """A program of the tests on the pods' network, which is asked to end by SIGTERM."""
        command = self.clients(sys.executable, *words)
        with (self.home / "clients.log").open("ab") as log:
            process = subprocess.Popen(
                command, cwd=ROOT, env=settings("", env), stdout=log, stderr=log
            )
        try:
            yield process
        finally:
            process.terminate()
            process.wait(60)
