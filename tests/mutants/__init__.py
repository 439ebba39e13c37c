"""Small bugs that are planted, one at a time, to see whether the tests notice."""
