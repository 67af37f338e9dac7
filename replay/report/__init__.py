"""A replay as a page to read, print, and put before a review: ``trueup replay --report FILE``.

`recommendation` says which configuration to choose and why, by `rule`, `warnings` what must be said beside it, `figure`
draws, `rows` tabulates, `page` puts it together. Everything is a function of `replay.result.Result`.
"""
