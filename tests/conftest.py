"""Settings for all tests, made before anything imports torch."""

import os

# Many tests fork or start programs. OpenMP's threads do not survive a fork, and on a small machine
# more threads than tests need only get in each other's way. Programs that tests start inherit this.
os.environ["OMP_NUM_THREADS"] = "1"
