"""The catalogue of all logs: for lists, ids and search. Derived, and disposable.

Two databases lie in ``<sessions>/.awl/``:

``index.db``          derived from the logs. Nothing ever pushes to it: whoever needs it lets it
                      catch up first. Delete it at any time.
``conversations.db``  the numbers of sessions (``#7``), and the conversations that have no log.
                      Nothing in it is derived, and it is never rebuilt.

Catching up is one way, taken every time: the logs are compared with the marks by size, mtime,
ctime, device and inode; what differs is checked (its bytes up to the mark, or for a long log its
last indexed line), read on from there, never past its last newline, synced, looked at once more,
and taken in with its new mark in one short transaction. What does not fit is read anew. So whatever
happened to a log or to the index, the next look heals it.

A log has two marks: `summary` keeps what lists show, `intake` what was said; the second is moved
by searches alone. Where ``index.db`` cannot be used at all, the same code fills a private temporary
database from the logs, so that every answer is the same, only slower.

Damage is noticed. What lists show is checked when the file has changed since it was last checked
(`rows`), texts and words as they are read (`segments`); what is not as awl left it is built anew.

`summary` and `texts` fold and split what logs say (pure but for reading), `database` opens and
mends, `level` and `intake` take in, `segments` keeps words, `catalog` lists and finds, `fulltext`
searches, `conversations` numbers.
"""
