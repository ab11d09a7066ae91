"""A real pipeline on real data: the main job of this project, and its check."""
