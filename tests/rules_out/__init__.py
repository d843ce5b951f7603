"""Every rule of refinement taken out, one at a time, to see the tests that hold it fail (docs/refinement.md).

    python -m tests.rules_out [WORD …]

Not part of the suite: it runs the suite's tests against copies of the project that are broken on purpose.
"""
