"""What an error or a log means."""

import json
from typing import Any, Dict

from kvferry._kvferry import explain_json


def explain(text: str) -> Dict[str, Any]:
    """Says what a message, a traceback or a whole log means.

    Returns a dict with ``primary`` (``id``, ``slug``, ``kind``, ``confidence``, ``evidence`` and more, or None if nothing
    was recognized), ``others``, ``secondary`` and ``recovered``: what ``kvferry explain --json`` prints. Raises nothing for
    text of any kind::

        try:
            engine.start()
        except Exception as error:
            found = kvferry.explain(str(error))["primary"]
    """
    # Half characters, as a lossily decoded log may hold, have no UTF-8.
    return json.loads(explain_json(text.encode("utf-8", "replace").decode("utf-8")))
