"""Several workers on this machine: the environment that tells each of them who it is."""

import json
import socket


def configs(count: int) -> list[dict[str, str]]:
    """TF_CONFIG of each worker, at free ports."""
    sockets = [socket.create_server(("localhost", 0)) for _ in range(count)]
    places = [f"localhost:{result.getsockname()[1]}" for result in sockets]
    for result in sockets:
        result.close()
    return [
        {
            "TF_CONFIG": json.dumps(
                {"cluster": {"worker": places}, "task": {"type": "worker", "index": index}}
            )
        }
        for index in range(count)
    ]
