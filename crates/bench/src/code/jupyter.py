# Times of a Jupyter kernel, as JSON: from its start to the first result, and of cells in a warm one.
import json
import sys
import time

from jupyter_client.manager import start_new_kernel

n_starts, n_cells = int(sys.argv[1]), int(sys.argv[2])


def timed(work):
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def begin():
    manager, client = start_new_kernel(kernel_name="python3")
    run(client)
    return manager, client


def run(client):
    client.execute_interactive("6 * 7", timeout=30, output_hook=lambda message: None)


starts, cells = [], []
for n in range(n_starts):
    took, (manager, client) = timed(begin)
    starts.append(took)
    if n == n_starts - 1:
        cells = [timed(lambda: run(client))[0] for _ in range(n_cells)]
    client.stop_channels()
    manager.shutdown_kernel(now=True)
print(json.dumps({"starts": starts, "cells": cells}))
