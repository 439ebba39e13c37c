"""Evaluation: the experiments of the papers, run anew, with their figures beside ours."""
