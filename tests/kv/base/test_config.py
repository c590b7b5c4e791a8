"""A node's settings: where they come from, which one wins, and what is refused."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from kv.base.config import OPTIONS, NodeConfig, load
from kv.base.errors import InvalidArgument
from kvorum.cli import start_commands
from tests.kit.each import each

SECRET = "sixteen characters and more"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "node.toml"
    path.write_text(
        'data = "from-file"\nport = 7000\nhttp = false\n'
        'procedure_modules = ["app.jobs", "app.more"]\njoin = ["a:7600", "b:7610"]\n'
    )
    return path


def test_flags_win_over_environment_over_file_over_defaults(file: Path) -> None:
    """An operator overrides a file for one start; the order must be the documented one."""
    environment = {"KVORUM_PORT": "7100", "KVORUM_DATA": "from-env", "HOME": "/x"}
    found = load({"port": 7200, "data": None}, environment, config=file)
    assert (found.port, found.data, found.http) == (7200, Path("from-env"), False)
    assert found.procedure_modules == ("app.jobs", "app.more")
    assert found.join == ("a:7600", "b:7610")
    assert found.log_level == "info"
    assert load({}, {"KVORUM_CONFIG": str(file)}).port == 7000
    assert load({}, {"KVORUM_CONFIG": "missing"}, config=file).port == 7000
    assert load({}, {"KVORUM_CONNECT": "elsewhere:7600"}) == NodeConfig()


def test_defaults_are_safe() -> None:
    """Out of the box nothing listens to the network."""
    config = NodeConfig()
    assert (config.listen, config.port, config.engine) == ("127.0.0.1", 7600, "rocks")
    assert config.reachable_at == "127.0.0.1"
    assert NodeConfig(advertise="db1").reachable_at == "db1"


@each("option", OPTIONS, ids=lambda option: option.name)
def test_every_setting_is_explained_and_keeps_its_default(option: Any) -> None:
    """`kvorum start --help` shows all of them; a default that its own check refuses would be a
    trap.
    """
    assert option.help.endswith(".")
    assert option.metavar or option.parse("yes") is True, "a switch takes no value"
    assert option.flag.startswith("--")
    assert option.variable == "KVORUM_" + option.name.upper()
    assert option.parse(option.default) == option.default
    text = ",".join(option.default) if isinstance(option.default, tuple) else str(option.default)
    assert load({}, {option.variable: text}) == NodeConfig(), "and as text"


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("port", "0", "an integer from 1 to 65526"),
        ("port", "http", "an integer"),
        ("port", True, "an integer"),
        ("port", 7600.0, "an integer"),
        ("node_id", -1, "from 0 to 65535"),
        ("stores", 65, "from 1 to 64"),
        ("http", "maybe", "true or false"),
        ("http", 1, "true or false"),
        ("engine", "lmdb", "one of rocks, memory"),
        ("log_level", "loud", "one of debug, info, warning, error"),
        ("roles", "http,httpd", "one of partitions, master"),
        ("roles", "http,http", "none is named twice"),
        ("join", "localhost", "addresses HOST:BASE"),
        ("join", "h:99999", "addresses HOST:BASE"),
        ("join", 7, "a list of addresses"),
        ("listen", "h:7600/x", "a host name"),
        ("data", "", "a directory's path"),
        ("procedure_modules", "app/jobs.py", "Python modules"),
        ("transfer_places", "/srv", "places file:///DIRECTORY"),
        ("transfer_places", "file:///srv/%2e%2e/etc", "places file:///DIRECTORY"),
        ("transfer_places", "fsspec+local:///srv", "places file:///DIRECTORY"),
        ("transfer_places", "sftp://store/backups/../etc", "places file:///DIRECTORY"),
        ("transfer_places", "sftp://store/backups?x=y", "places file:///DIRECTORY"),
        ("transfer_places", "s3://bucket/%2e%2e/x", "places file:///DIRECTORY"),
        ("transfer_places", "cache::sftp://store", "places file:///DIRECTORY"),
        ("http_hosts", "db.example.org:7602", "host names without a port"),
        ("http_hosts", "*.", "host names without a port, *.NAME, or *"),
        ("gc_retention_ms", 0, "from 1 to"),
    ],
)
def test_wrong_values_say_what_where_and_what_is_allowed(
    name: str, value: Any, allowed: str, tmp_path: Path
) -> None:
    """Whoever starts a node must see which of three places has the mistake."""
    flag = "--" + name.replace("_", "-")
    with pytest.raises(InvalidArgument) as caught:
        load({name: value}, {})
    assert allowed in caught.value.message
    assert f"{name} = {value!r} (from {flag})" in caught.value.message
    assert caught.value.details["setting"] == name
    if isinstance(value, str):
        with pytest.raises(InvalidArgument, match=f"from KVORUM_{name.upper()}"):
            load({}, {f"KVORUM_{name.upper()}": value})
        file = tmp_path / "bad.toml"
        file.write_text(f'{name} = "{value}"\n')
        with pytest.raises(InvalidArgument, match=f"from {file}"):
            load({}, {}, config=file)


def test_the_reference_lists_every_setting() -> None:
    """A setting that is missing in the docs, or documented wrongly, is found by nobody."""
    text = (Path(__file__).parents[3] / "docs" / "reference" / "config.md").read_text("utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert len(rows) == len(OPTIONS)
    for row, option in zip(rows, OPTIONS, strict=True):
        flag = "none" if option.secret else f"`{f'{option.flag} {option.metavar}'.strip()}`"
        assert row.startswith(f"| `{option.name}` | {flag} |")
        assert f"`{option.variable}`" in row
        assert row.endswith(f"{option.help} |")
        default = ",".join(option.default) if isinstance(option.default, tuple) else option.default
        assert str(default).lower() in row.lower()


def test_unknown_names_are_errors_with_a_suggestion(tmp_path: Path) -> None:
    """A misspelt setting that is ignored is a default that nobody chose."""
    file = tmp_path / "node.toml"
    file.write_text("prot = 7600\n")
    for flags, environment, config, words in (
        ({}, {}, file, "unknown setting 'prot'; did you mean port?"),
        (
            {},
            {"KVORUM_PROT": "1"},
            None,
            "environment: unknown setting 'KVORUM_PROT'; did you mean",
        ),
        ({"xyzzy": 1}, {}, None, "flags: unknown setting 'xyzzy'; known are data, listen"),
    ):
        with pytest.raises(InvalidArgument) as caught:
            load(flags, environment, config=config)
        assert words in caught.value.message
    assert load({}, {"KVORUM_PROT": "1"}, ignore=["KVORUM_PROT"]) == NodeConfig()


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """Starting with defaults because the file was missing would open another, empty database."""
    for path in (tmp_path / "missing.toml", tmp_path):
        with pytest.raises(InvalidArgument, match=f"config file {path} cannot be read"):
            load({}, {}, config=path)
    bad = tmp_path / "bad.toml"
    for content in (b"port = = 1\n", b"\xff\xfe"):
        bad.write_bytes(content)
        with pytest.raises(InvalidArgument, match="is not TOML"):
            load({}, {}, config=bad)


def test_relations_between_settings_are_checked() -> None:
    """Each of these starts and then does not work."""
    for values, words in (
        ({"listen": "0.0.0.0", "join": "a:7600"}, "give --advertise"),
        ({"listen": "0.0.0.0"}, r"kvorum cert ca.*kvorum cert node.*--host NAME.*--insecure"),
        ({"listen": "10.0.0.1", "advertise": "a"}, "--host a`, and start with --tls-dir"),
        ({"insecure": True, "tls_dir": "tls"}, "exclude each other"),
        (
            {"listen": "0.0.0.0", "join": "a:7600", "advertise": "a", "insecure": True},
            "KVORUM_CLUSTER_SECRET",
        ),
        ({"join": "127.0.0.1:7610,127.0.0.1:7600", "node_id": 1}, "--node-id 2"),
        ({"join": ",".join(f"h{i}:7600" for i in range(10))}, "at most 9"),
        ({"roles": ""}, "roles is empty"),
        ({"port": 65_500, "stores": 5}, "no room for 5 stores"),
    ):
        with pytest.raises(InvalidArgument, match=words):
            load(values, {})
    everywhere = {
        "listen": "0.0.0.0",
        "join": "a:7600,b:7600",
        "advertise": "a",
        "insecure": True,
    }
    config = load(everywhere, {"KVORUM_CLUSTER_SECRET": SECRET})
    assert (config.reachable_at, config.address, config.place) == ("a", "a:7600", 1)
    assert "nothing is encrypted" in config.notice
    assert load({"insecure": True}, {}).notice == "", "nobody else reaches it"
    secured = everywhere | {"insecure": None, "tls_dir": "tls"}
    assert load(secured, {}).cluster_secret == "", "certificates prove nodes"
    assert load({"join": "localhost:7600,b:1"}, {}).place == 1, "this machine has three names"
    assert load({"join": "b:1,localhost:7600"}, {}).place == 2, "its number need not be said"
    assert load({"join": "b:1"}, {}).place is None


def test_the_secret_is_never_told(tmp_path: Path) -> None:
    """What nodes prove to each other must not end up in a log, a process list or an error."""
    config = load({}, {"KVORUM_CLUSTER_SECRET": SECRET})
    assert config.cluster_secret == SECRET
    assert SECRET not in repr(config)
    with pytest.raises(InvalidArgument, match="16 to 1024 characters") as caught:
        load({}, {"KVORUM_CLUSTER_SECRET": "too short"})
    assert "too short" not in f"{caught.value.message} {caught.value.details}"
    assert "cluster_secret" not in inspect.signature(start_commands.start).parameters


def test_spellings_are_brought_to_one_form() -> None:
    """The same setting written differently must be the same."""
    config = load(
        {"http": "Off", "engine": "MEMORY", "join": " a:1 , [::1]:2 ", "port": " 80 "}, {}
    )
    assert (config.http, config.engine, config.port) == (False, "memory", 80)
    assert config.join == ("a:1", "[::1]:2")
    assert load({"data": "~/x"}, {}).data == Path.home() / "x"


@pytest.mark.parametrize(
    "value",
    [
        "postgresql://me:hush@db",
        "sftp://me:hush@store/backups",
        "s3://key:hu/sh@bucket",
        "s3://bucket?access_key=hush",
        "abfs://c@a.example/x?region=y&s%61s=hush",
    ],
)
def test_a_key_in_a_place_is_refused_and_not_repeated(value: str, tmp_path: Path) -> None:
    """Whoever reads the log of a node that did not start has the password."""
    file = tmp_path / "kvorum.toml"
    file.write_text(f'transfer_places = ["{value}"]\n')
    for made in (
        lambda: load({"transfer_places": value}, {}),
        lambda: load({}, {"KVORUM_TRANSFER_PLACES": value}),
        lambda: load({}, {}, config=file),
    ):
        with pytest.raises(InvalidArgument, match="transfer_places") as caught:
            made()
        assert not re.search("hush|hu/sh", f"{caught.value.message} {caught.value.details}")
    good = "s3://bucket/kvorum?endpoint_override=minio:9000&scheme=http"
    assert load({"transfer_places": good}, {}).transfer_places == (good,)
