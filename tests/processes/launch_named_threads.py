"""A module whose import leaves a thread behind, called what a variable says."""

import os
import threading
from pathlib import Path

_named = threading.Event()


def _rest() -> None:
    comm = Path(f"/proc/self/task/{threading.get_native_id()}/comm")
    comm.write_text(os.environ["LAUNCH_THREAD"])
    _named.set()
    threading.Event().wait()


threading.Thread(target=_rest, daemon=True).start()
_named.wait()
