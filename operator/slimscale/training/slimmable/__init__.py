"""A slimmable CNN: one set of weights that runs at several widths, trained, exported and measured.

Yu et al. 2019 (arXiv 1812.08928) and Yu & Huang 2019 (arXiv 1903.05134): a narrower network uses the
first channels of each layer. The layers here are our own.
"""
