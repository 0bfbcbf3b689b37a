"""Recording an episode while it happens, in the calling process or through one of its own.

`recorder` takes the steps and writes `files`; `unfinished` reads those and makes an episode of them.
`process` is what a control loop holds: it hands out recorders (`queued`) that put `messages` into a `ring` in
shared memory, from which the `writer`, a process without torch, feeds a `recorder`.
"""
