"""Looking at processes from outside; as a child, answering a question."""

import os
import time
from pathlib import Path

from regional_explorer.compiler.child import answer_question


def until(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while not (found := condition()) and time.monotonic() < end:
        time.sleep(0.05)
    return found


def is_running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # Where nobody collects orphans they stay as zombies, which run no more.
    state = Path(f"/proc/{pid}/stat")
    return not state.exists() or state.read_text().rpartition(")")[2].split()[0] != "Z"


def main():
    """In a child: answer with the text of the question, end, or wait."""

    def answer(question):
        if question == "end":
            os._exit(1)
        if question == "wait":
            time.sleep(100)
        return str(question)

    answer_question(answer)
