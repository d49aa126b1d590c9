"""Commands at a terminal: options made from requests, inputs by name, results, progress and messages."""
