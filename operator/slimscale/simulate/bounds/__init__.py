"""What no policy can beat, and what offline solvers recommend: a planning LP, exact MDPs, SMDP tables.

Offline only: linear programmes come from SciPy. The data plane and the operator import none of it.
"""
