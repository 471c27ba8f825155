"""A virtual environment with the clients that the tests of this folder use, made once in build/api-venv."""

import fcntl
import os
import subprocess
import sys

CLIENTS = ["openai==3.57.0", "anthropic==2.14.0"]


def _python_with(repository):
    """The interpreter of the environment, or None when PyPI cannot be reached."""
    folder = f"{repository}/build/api-venv"
    python = f"{folder}/bin/python"
    checks = "; ".join(f"assert version('{name}') == '{number}'" for name, number in (client.split("==") for client in CLIENTS))
    have = [python, "-c", f"from importlib.metadata import version; {checks}; import openai, anthropic"]
    if os.path.exists(python) and subprocess.run(have, capture_output=True).returncode == 0:
        return python
    for step in ([sys.executable, "-m", "venv", "--clear", folder],
                 [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries", "1", "--timeout", "20", *CLIENTS]):
        done = subprocess.run(step, capture_output=True, text=True)
        if done.returncode != 0:
            words = (done.stderr or done.stdout).strip()
            print(f"skipped: {' and '.join(CLIENTS)} could not be installed from PyPI ({' '.join(step[1:3])} failed):\n{words}")
            return None
    return python


def run_in_venv(repository, script):
    """Goes on in the environment: returns where the process runs in it already, and else starts the script there."""
    if "--in-venv" in sys.argv:
        return
    os.makedirs(f"{repository}/build", exist_ok=True)
    lock = open(f"{repository}/build/api-venv.lock", "w")  # ctest may start several of these tests at once
    fcntl.flock(lock, fcntl.LOCK_EX)
    interpreter = _python_with(repository)
    lock.close()
    if interpreter is None:
        sys.exit(77)  # ctest's word for skipped
    os.execv(interpreter, [interpreter, os.path.abspath(script), *sys.argv[1:3], "--in-venv"])
