"""A replay as a page to read, print, and put before a review: ``trueup replay --report FILE``.

`recommendation` chooses a configuration by `rule`, `warnings` adds cautions, `figure` draws, `rows` makes tables, and
`page` combines them. Everything is a function of `replay.result.Result`.
"""
