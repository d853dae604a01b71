"""Tests of the commands; a package so that its modules may be named like those of other packages."""
