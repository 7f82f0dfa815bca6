"""A small server with the addresses of the Hugging Face Hub that its client uses, keeping files in memory."""

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

TOKEN = "hf_test"
Files = dict[str, bytes]


class LocalHub:
    """Repositories by name; each commit is a new revision."""

    def __init__(self) -> None:
        self.repositories: dict[str, list[Files]] = {}
        self.private: dict[str, bool] = {}
        self.messages: list[str] = []
        self.address = ""

    def files(self, name: str) -> Files:
        return self.repositories[name][-1]

    def sha(self, name: str) -> str:
        return hashlib.sha1(f"{name} {len(self.repositories[name])}".encode()).hexdigest()

    def commit(self, name: str, lines: list[dict[str, Any]]) -> None:
        files = dict(self.files(name))
        for line in lines:
            key, value = line["key"], line["value"]
            if key == "header":
                self.messages.append(value["summary"])
            elif key == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif key == "deletedFile":
                del files[value["path"]]
        self.repositories[name].append(files)


class Handler(BaseHTTPRequestHandler):
    hub: LocalHub

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def answer(self, status: int, content: object = None, headers: dict[str, str] | None = None) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    @property
    def words(self) -> list[str]:
        return [unquote(word) for word in urlsplit(self.path).path.strip("/").split("/")]

    def refuses(self) -> bool:
        if self.headers.get("Authorization") == f"Bearer {TOKEN}":
            return False
        self.answer(401, {"error": "Invalid credentials"})
        return True

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def do_GET(self) -> None:
        words, hub = self.words, self.hub
        if words == ["api", "whoami-v2"]:
            self.refuses() or self.answer(200, {"name": "user", "type": "user", "orgs": []})
            return
        name = "/".join(words[2:4] if words[0] == "api" else words[:2])
        if name not in hub.repositories:
            self.answer(404, {"error": "not found"}, {"X-Error-Code": "RepoNotFound"})
        elif words[0] == "api":
            self.answer_about(name, words[4:])
        else:
            path = "/".join(words[4:])
            content = hub.files(name)[path]
            headers = {"ETag": f'"{hashlib.sha1(content).hexdigest()}"', "X-Repo-Commit": hub.sha(name)}
            self.answer(200, content, headers)

    do_HEAD = do_GET

    def answer_about(self, name: str, words: list[str]) -> None:
        hub = self.hub
        if words and words[1] not in ("main", hub.sha(name)):
            self.answer(404, {"error": "no revision"}, {"X-Error-Code": "RevisionNotFound"})
        elif words and words[0] == "tree":
            entries = [
                {"type": "file", "path": path, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
                for path, content in hub.files(name).items()
            ]
            self.answer(200, entries)
        else:
            siblings = [{"rfilename": path} for path in hub.files(name)]
            facts = {"id": name, "sha": hub.sha(name), "siblings": siblings, "private": False, "tags": []}
            self.answer(200, facts | {"downloads": 0, "likes": 0})

    def do_POST(self) -> None:
        words, body, hub = self.words, self.body(), self.hub
        if words == ["api", "validate-yaml"]:
            self.answer(200, {"errors": [], "warnings": []})
        elif self.refuses():
            return
        elif words == ["api", "repos", "create"]:
            asked = json.loads(body)
            name = f"{asked.get('organization') or 'user'}/{asked['name']}"
            taken = name in hub.repositories
            if not taken:
                hub.repositories[name] = [{}]
                hub.private[name] = asked.get("private") is True or asked.get("visibility") == "private"
            self.answer(409 if taken else 200, {"url": f"{hub.address}/{name}", "id": name, "name": name})
        elif words[4] == "preupload":
            asked = json.loads(body)["files"]
            regular = {"uploadMode": "regular", "shouldIgnore": False}
            self.answer(200, {"files": [{"path": file["path"], **regular} for file in asked]})
        elif words[4] == "commit":
            name = "/".join(words[2:4])
            hub.commit(name, [json.loads(line) for line in body.splitlines()])
            url = f"{hub.address}/{name}/commit/{hub.sha(name)}"
            self.answer(200, {"success": True, "commitOid": hub.sha(name), "commitUrl": url})
        else:
            self.answer(404, {"error": self.path})


@contextmanager
def served() -> Iterator[LocalHub]:
    hub = LocalHub()
    handler = type("HubHandler", (Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    hub.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
