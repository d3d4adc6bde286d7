"""Planted bugs: small patches, each of which breaks a promise, and the tests that must catch them.

    python -m proof.mutants                 plant each in turn in a copy of the tree; say what catches it, and how soon
    python -m proof.mutants --only clip     those whose name has this in it, each with the story of how it breaks
    python -m proof.mutants --write         the same as the first, and write the table into docs/reliability.md

A bug that nothing catches means that the tests don't look closely enough: then they are what must change.
"""
