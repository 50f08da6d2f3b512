"""The console: a page to look into a running cluster, change its state and produce records, for development.

The process that owns the cluster serves it, so it outlives the brokers that it kills. Brokers are asked through the
cluster (`ConsoleCluster`), in this process or in theirs; records go through the broker's own append.

- `server`: HTTP on 127.0.0.1. One thread accepts, and each connection has a thread, at most `MAX_CONNECTIONS`. `guard`
  decides which requests may come in.
- `feed`: one thread looks at the brokers while anyone watches, and gives each viewer what has changed.
- `sections`: what it sees, as the JSON that the page shows, and the rates of the last minute.
- `actions`: what the page can do; every argument is checked. `search` reads records, `readable` makes their bytes text,
  `schemas` asks the schema registry.
- `page`: the page itself from `page.html`, `page.css` and `page.js`, in one file.

Everything is bounded: viewers, the requests kept for each, bodies, previews, scans and the lists of a section.
"""

from .server import Console

__all__ = ["Console"]
