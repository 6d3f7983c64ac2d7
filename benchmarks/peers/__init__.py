"""Other programs' session stores, used as their users do, each in an environment of its own.

An adapter is one module with `NEEDS` (what is installed for it) and a class `Peer`, made for a
folder: `append(texts)` writes messages one by one, `fill(texts)` may write them at once, `load()`
reads a session back whole and says how many messages it has, `sessions(count)` makes many,
`list()` lists them, `fork()` and `search(word)` where there are such. The adapters run in their own
environment and import nothing of awl.
"""
