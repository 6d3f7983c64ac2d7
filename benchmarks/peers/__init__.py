"""Other programs' session stores, used as their users do, each in an environment of its own.

An adapter is one module with `NEEDS` (what is installed for it), `NOTES` (a word on steps that it
has not, or has otherwise) and a class `Peer`, made for a folder and one step. `append(texts)`
writes messages one by one, `fill(texts)` may write them at once, `load()` reads a session back
whole, `sessions(count)` makes many and `list()` lists them, `index(texts)` writes messages for
`search(word)`, which gives the first fifty that hold it, `fork()` copies a session: each where
there is such. Those that read say how many they found. What a step needs open and is not measured
is opened by `prepare(step)`, and let go of by `close()`. Only those of awl and its floor import
anything of awl.
"""
