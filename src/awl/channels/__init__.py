"""Where people meet the agent. One module a channel; each is imported only when it is used.

`terminal` is the interactive one. It prints through `screen` (a turn's events) and `display` (what
a message, a banner and a history look like), and these through `markdown`.
"""
