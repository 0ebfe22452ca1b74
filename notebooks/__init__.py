"""Notebooks, one claim each, and the programs that run them: one at a time or over a grid.

python -m notebooks.run NAME --out DIR -p name value   one notebook, checked, recorded
python -m notebooks.reproduce PROFILE                  a profile's grid, then the report
"""
