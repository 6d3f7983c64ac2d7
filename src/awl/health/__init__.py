"""Whether sessions are sound, and what can be done when they are not.

`verify` reads and reports, and changes nothing. `repair` makes a sound copy of a damaged session,
`redact` gets a text out of a session and of all that derives from it, `usage` counts bytes.

Below them: `lines` follows the entries of a log and says what is wrong with them, in memory of a
few bytes an entry (`ids`); `beside` looks at what lies beside a log; `findings` is what both say;
`salvage` finds whole records in a line that is none; `pattern` finds a text however it is escaped.
"""
