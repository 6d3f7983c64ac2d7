"""Other programs' session stores, used as their users do, each in an environment of its own.

An adapter is one module with `NEEDS` (what is installed for it) and a class `Peer`, made for a
folder: `append(texts)` writes messages one by one, `fill(texts)` may write them at once, `load()`
reads a session back whole and says how many messages it has, `sessions(count)` makes many,
`list()` lists them, `fork()` copies a session; each where there is such. `MOST` is how many
messages a session may have here. Only those of awl and its floor import anything of awl.
"""
