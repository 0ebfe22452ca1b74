"""How to cite what a figure shows: the paper and this package, as README has them."""

BIBTEX = {
    "shang2026erase": """\
@article{shang2026erase,
  title   = {{ERASE}: {EaRly} {bAckpropagation} {SchEdule} for Faster Training of Modern Recommendation Systems},
  author  = {Shang, Ergan and Truzzi, Flavio Sales},
  journal = {arXiv preprint arXiv:2608.18469},
  year    = {2026}
}""",  # noqa: E501 - one field a line, verbatim as in README
    "erase_repro": """\
@software{erase_repro,
  title   = {erase-repro: early backpropagation schedules, measured and reproduced},
  author  = {{The erase-repro contributors}},
  version = {0.1.0},
  year    = {2026}
}""",
}
"""Ready BibTeX entries by key."""
