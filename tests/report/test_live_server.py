"""The live server, as browsers and others meet it."""

import http.client
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.report.conftest import served

from fedcompass.errors import SettingsError
from fedcompass.report import LiveServer, RunFiles


@pytest.fixture
def run(tmp_path: Path) -> RunFiles:
    (tmp_path / "experiment.toml").write_text("seed = 3\n")
    (tmp_path / "journal.jsonl").write_text('{"journal":1}\n')
    return RunFiles(tmp_path)


def ask(
    server: LiveServer, path: str, method: str = "GET", **headers: str
) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    connection.request(method, path, headers=headers)
    return connection.getresponse()


def events(response: http.client.HTTPResponse) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Kind, id and content of each event, as they come."""
    fields: dict[str, str] = {}
    while line := response.readline().decode():
        name, _, value = line.rstrip("\n").partition(": ")
        if line != "\n":
            fields[name] = value
        elif "event" in fields:
            yield fields["event"], fields["id"], json.loads(fields["data"])
            fields = {}


def test_the_page_forbids_everything_it_does_not_need(run: RunFiles) -> None:
    with served([run]) as server, ask(server, "/") as response:
        assert response.status == 200
        assert response.headers["Content-Type"] == "text/html; charset=utf-8"
        policy = response.headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; script-src 'sha256-")
        assert "connect-src 'self'" in policy
        assert "unsafe" not in policy
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert response.headers["X-Frame-Options"] == "DENY"
        assert response.headers["Referrer-Policy"] == "no-referrer"
        assert "Access-Control-Allow-Origin" not in response.headers
        assert b'"live":true' in response.read()


@pytest.mark.parametrize(
    "path",
    ["/journal.jsonl", "/../journal.jsonl", "/..%2f..%2fetc/passwd", "//etc/passwd", "/events/x"],
)
def test_there_is_no_way_to_other_files(run: RunFiles, path: str) -> None:
    with served([run]) as server, ask(server, path) as response:
        assert response.status == 404
        assert response.read() == b"not found\n"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD"])
def test_nothing_can_be_changed(run: RunFiles, method: str) -> None:
    before = sorted((path.name, path.read_bytes()) for path in run.path.iterdir())
    with served([run]) as server, ask(server, "/", method) as response:
        assert response.status == 405
        assert response.headers["Allow"] == "GET"
    assert sorted((path.name, path.read_bytes()) for path in run.path.iterdir()) == before


def test_a_foreign_name_for_this_machine_is_refused(run: RunFiles) -> None:
    with served([run]) as server:
        for host in ("evil.example", f"evil.example:{server.server_port}", "127.0.0.1"):
            with ask(server, "/", Host=host) as response:
                assert response.status == 403
        with ask(server, "/", Host=f"localhost:{server.server_port}") as response:
            assert response.status == 200


def test_bound_elsewhere_it_shows_itself_only_with_the_token(run: RunFiles) -> None:
    with served([run], host="0.0.0.0") as server:
        assert server.token is not None
        assert len(server.token) >= 32
        assert server.url.endswith(f":{server.server_port}/?token={server.token}")
        for path in ("/", "/events", "/?token=", "/?token=wrong", f"/?token={server.token}x"):
            with ask(server, path) as response:
                assert response.status == 403, path
        for path in ("/", "/events"):
            with ask(server, f"{path}?token={server.token}") as response:
                assert response.status == 200


def test_each_server_has_a_token_of_its_own(run: RunFiles) -> None:
    with served([run], host="0.0.0.0") as first, served([run], host="0.0.0.0") as second:
        assert first.token != second.token


def test_on_this_machine_there_is_no_token(run: RunFiles) -> None:
    with served([run]) as server:
        assert server.url == f"http://127.0.0.1:{server.server_port}/"


def test_the_stream_tells_what_the_journal_gains_and_ends_with_the_run(run: RunFiles) -> None:
    with served([run]) as server, ask(server, "/events") as response:
        news = events(response)
        assert [kind for kind, _, _ in (next(news), next(news))] == ["reset", "facts"]
        kind, _, content = next(news)
        assert (kind, content["text"]) == ("lines", '{"journal":1}\n')
        with run.journal.open("a") as journal:
            journal.write("more\n")
        kind, place, content = next(news)
        assert (kind, content["text"]) == ("lines", "more\n")
        with ask(server, "/events", **{"Last-Event-ID": place}) as again:
            (run.path / "summary.json").write_text("{}")
            kinds = [kind for kind, _, _ in events(again)]
        assert set(kinds) == {"facts", "done"}
        assert kinds[-1] == "done"


def test_a_server_that_stops_ends_its_streams(run: RunFiles) -> None:
    with served([run]) as server:
        response = ask(server, "/events")
        news = events(response)
        next(news)
    assert [kind for kind, _, _ in news][-1] == "lines"
    response.close()


def test_a_port_in_use_is_one_line(run: RunFiles) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(SettingsError, match=f"cannot listen at 127.0.0.1:{port}: .*--port"):
            LiveServer([run], port=port)


def test_a_host_that_is_not_ours_is_one_line(run: RunFiles) -> None:
    with pytest.raises(SettingsError, match="choose another --host or --port"):
        LiveServer([run], host="192.0.2.1", port=0)
