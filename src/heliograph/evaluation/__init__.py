"""Evaluation: repeats the experiments of the papers, and shows their figures beside ours."""
