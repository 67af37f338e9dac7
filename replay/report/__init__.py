"""A replay as a page to read, print, and put before a review: ``trueup replay --report FILE``.

`choice` says which configuration to choose and why, `cautions` what must be said beside it, `figure` and its neighbours
draw, `tables` tabulates, `page` puts it together. Everything is a function of `replay.result.Result`.
"""
