"""Calls a network in itself and in children of every kind, each with a seed of its own."""

import multiprocessing
import subprocess
import sys

from tiny_net import run

if __name__ == "__main__":
    for seed, method in ((1, "spawn"), (2, "fork")):
        child = multiprocessing.get_context(method).Process(target=run, args=(seed,))
        child.start()
        child.join()
    subprocess.run([sys.executable, "-m", "tiny_net"], check=True)
    run(3)
    sys.exit(5)
