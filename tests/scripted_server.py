"""A real HTTP server on this machine that answers, or fails, as a script says."""

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Respond = Callable[[str, dict], tuple[int, dict | str]]


class ScriptedServer:
    """Answers each POST with what ``respond(path, body)`` returns: a status and a body.

    ``script`` holds what comes before: ``"drop"`` breaks the connection, ``"hang"`` waits until the
    server is closed, ``(status, body)`` or ``(status, body, headers)`` is sent.
    """

    def __init__(self, respond: Respond | None = None, script: list | None = None) -> None:
        self.script = list(script or [])
        self.respond = respond or (lambda path, body: (200, {"path": path, "echo": body}))
        self.requests: list[tuple[str, dict, dict[str, str]]] = []
        self.open = self.busy = 0
        self.most_at_once = 0
        self.lock = threading.Lock()
        self.closing = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"scripted": self}))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_error):
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def setup(self):
        super().setup()
        with self.scripted.lock:
            self.scripted.open += 1

    def finish(self):
        with self.scripted.lock:
            self.scripted.open -= 1
        super().finish()

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        server = self.scripted
        with server.lock:
            server.requests.append((self.path, body, dict(self.headers)))
            server.busy += 1
            server.most_at_once = max(server.most_at_once, server.busy)
            planned = server.script.pop(0) if server.script else None
        try:
            self.answer(planned, body)
        finally:
            with server.lock:
                server.busy -= 1

    def answer(self, planned, body):
        if planned in ("drop", "hang"):
            self.close_connection = True
            if planned == "hang":
                self.wait_for_the_other_side()
            return
        status, content, *headers = planned or self.scripted.respond(self.path, body)
        data = (content if isinstance(content, str) else json.dumps(content)).encode()
        self.send_response(status)
        for name, value in (headers[0] if headers else {}).items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def wait_for_the_other_side(self):
        self.connection.settimeout(0.02)
        while not self.scripted.closing.is_set():
            try:
                if not self.connection.recv(1):
                    return
            except TimeoutError:
                continue
            except OSError:
                return

    def log_message(self, *_arguments):
        pass


def chat_answer(text: str, **more) -> dict:
    """A chat completion whose message says ``text``."""
    message = {"role": "assistant", "content": text}
    return {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], **more}
