"""Bytes that survive: the session log, format version 1.

A log is one file of JSON lines, ``<sessions>/<encoded-cwd>/<timestamp>_<uuid>.jsonl``: UTF-8, one
object a line, ``\\n`` at its end and nowhere else. It is only ever appended to.

    {"type":"session","version":1,"id":"019dc5ba-…","timestamp":"2026-04-25T17:40:15.990Z",…}
    {"type":"message","id":"5f0c9a1e","parentId":null,"timestamp":"…","seq":1,"message":{…}}
    {"type":"message","id":"77b1e402","parentId":"5f0c9a1e","timestamp":"…","seq":2,"turnId":1,…}

Header   the first line; no part of the tree.
Entry    every other line: ``type``, ``id`` (8 hex digits), ``parentId`` (the entry it follows),
         ``timestamp``, ``seq`` (1, 2, 3 …) and, inside a turn, ``turnId``. `awl.entries` has them.
Valid    a line that alone is one JSON object. Anything else is *bad*: it stays, is skipped and
         reported, and costs itself alone.
Torn     everything after the last valid object and its newline. Only a writer that holds the lock
         cuts it, after it was saved whole as ``<log>.torn-<time>``. A valid last object that only
         lacks its newline gets it.
Order    the file's. The next seq is the last readable one + 1 + the number of bad, non-blank,
         newline-ended lines after it, cut or not: an acknowledged seq is never used twice.
Parent   the nearest earlier entry with that id. Only ``rewind`` names another than the one before.
Append   one ``write`` of whole lines, then ``fdatasync``; only then is an entry acknowledged. The
         writer holds ``flock`` on the descriptor it writes through, and the file must end where it
         left it.
Beside   ``<name>.blobs/<sha256>`` large payloads, durable before the line that names them;
         ``<name>.jsonl.owner`` a hint who has it open, never a lock.

`line` turns an entry into one line and back, `scan` reads a damaged file to its end, `file` locks,
appends, syncs and recovers, `blobs` keeps large payloads, `birth` makes a whole log at once.
"""
