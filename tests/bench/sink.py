"""A model server that takes a request of any size without keeping it, and answers at once: python -m tests.bench.sink

Prints its port. What it is sent costs it next to nothing, so that what a client takes is the client's.
"""

import json
import socket
import threading

SAID = "## Patterns Found\nTea.\n\n## Repeated Work\nNone.\n\n## Recommendations\nMore tea."
BUFFER = 1 << 20
BODY = json.dumps({"choices": [{"message": {"role": "assistant", "content": SAID}, "finish_reason": "stop"}]})
HEAD = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(BODY)}\r\n\r\n"
ANSWER = (HEAD + BODY).encode()


def main() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        print(server.getsockname()[1], flush=True)
        while True:
            client, _ = server.accept()
            threading.Thread(target=_answer, args=(client,), daemon=True).start()


def _answer(client: socket.socket) -> None:
    with client, client.makefile("rb", buffering=BUFFER) as wire:
        while wire.readline():
            headers = {}
            while line := wire.readline().strip():
                name, _, value = line.partition(b":")
                headers[name.lower()] = value.strip()
            _drop(wire, headers)
            client.sendall(ANSWER)


def _drop(wire: object, headers: dict[bytes, bytes]) -> None:
    buffer = memoryview(bytearray(BUFFER))

    def take(many: int) -> None:
        while many:
            many -= wire.readinto(buffer[: min(many, BUFFER)])  # type: ignore[attr-defined]

    if headers.get(b"transfer-encoding") != b"chunked":
        take(int(headers.get(b"content-length", b"0")))
        return
    while size := int(wire.readline(), 16):  # type: ignore[attr-defined]
        take(size)
        wire.readline()  # type: ignore[attr-defined]
    wire.readline()  # type: ignore[attr-defined]


if __name__ == "__main__":
    main()
