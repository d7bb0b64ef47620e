"""Several workers on this machine: the environment that tells each of them who it is."""

import json
import socket


def configs(count: int) -> list[dict[str, str]]:
    """TF_CONFIG of each worker, at free ports."""
    sockets = [socket.create_server(("localhost", 0)) for _ in range(count)]
    places = [f"localhost:{made.getsockname()[1]}" for made in sockets]
    for made in sockets:
        made.close()
    return [
        {
            "TF_CONFIG": json.dumps(
                {"cluster": {"worker": places}, "task": {"type": "worker", "index": index}}
            )
        }
        for index in range(count)
    ]
