"""Every rule of refinement, and every MUST of memory, taken out, one at a time, to see the tests that hold it fail
(docs/refinement.md, docs/memory-rules.md).

    python -m tests.rules_out [WORD …]

Not part of the suite: it runs the suite's tests against copies of the project that are broken on purpose.
"""
